//! The document before its judges: two linters, and a fuzzer that takes it at its word.

use super::workshop::Workshop;
use super::{Keys, TOKEN};

#[test]
#[ignore = "needs npm packages: tests/clients"]
fn spectral_and_redocly_find_nothing() {
    let workshop = Workshop::prepare("document");
    // Warnings and hints count as findings.
    workshop.sh("spectral lint --fail-severity hint openapi.json");
    workshop.sh("REDOCLY_TELEMETRY=off redocly lint openapi.json");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a package of Python: tests/clients"]
async fn schemathesis_finds_nothing_on_the_running_service() {
    let workshop = Workshop::prepare("service");
    let keys = Keys::make().await;
    let service = keys.start().await;
    let variables = [
        ("BLOOMGATE_URL", service.base_url()),
        ("BLOOMGATE_KEY", &keys.admin),
        ("BLOOMGATE_TOKEN", TOKEN),
    ];
    workshop.run(&[], &variables);
}
