//! Clients that generators make of the document: one and the same scenario in each language, by the real
//! program, and `docs/clients.md` taken at its word. `tests/clients` installs what this needs and runs it.
//!
//! A folder of `tests/clients.d` is a language. It holds `scenario`, whose lines must be those of
//! `transcript.txt`, and `run`, which compiles a program of the folder and runs it. How the client is
//! generated, and a sample of its use, stand in `docs/clients.md` as blocks of code.

mod document;
mod tomorrow;
mod workshop;

use crate::support::{Bloomgate, Launch};
use tomorrow::Tomorrow;
use workshop::Workshop;

/// Where the samples of `docs/clients.md` look for the service.
const WHERE_SAMPLES_ASK: &str = "http://localhost:8080";

/// A PostgreSQL store at a port where nobody listens.
const NO_STORE: &str = "postgres://nobody:nothing@127.0.0.1:1/nothing";

/// A JWT whose `jti` is `token-of-ann`. Nobody verifies its signature.
const TOKEN: &str = "eyJhbGciOiJSUzI1NiJ9.\
    eyJqdGkiOiJ0b2tlbi1vZi1hbm4iLCJpYXQiOjE3NjAwMDAwMDAsInN1YiI6ImFubiJ9.c2lnbmF0dXJl";

/// The keys of the scenario, and the configuration that knows them.
struct Keys {
    admin: String,
    /// May check in two filters, and do nothing else.
    check: String,
    /// May ask once a second.
    slow: String,
    config: String,
}

impl Keys {
    async fn make() -> Self {
        let filters = "filters = [\"revoked-jti\", \"signup-emails\"]";
        let (admin, of_admin) = key("admin", "admin").await;
        let (check, of_check) = key("check", "check").await;
        let (slow, of_slow) = key("slow", "admin").await;
        let config = format!(
            "{of_admin}\n{of_check}\n{filters}\n{of_slow}\nrequests_per_second = 1\n\
             [authz.api]\njti = \"revoked-jti\"\n"
        );
        Self {
            admin,
            check,
            slow,
            config,
        }
    }

    async fn start(&self) -> Bloomgate {
        let mut service = Launch::new().config(&self.config).start().await;
        service.use_key(&self.admin);
        service.wait_live("registered-email").await;
        service.wait_live("revoked-jti").await;
        service
    }

    async fn start_without_store(&self) -> Bloomgate {
        let launch = Launch::new().config(&self.config).database_url(NO_STORE);
        launch.start().await
    }
}

/// A key of that scope, and the block to paste for it.
async fn key(id: &str, scope: &str) -> (String, String) {
    let arguments = ["key", "new", "--id", id, "--scope", scope];
    let made = Launch::new().run(&arguments).await.stdout;
    let key = made.lines().find(|line| line.starts_with("bg_"));
    let (_, block) = made.split_once("[[keys]]").unwrap();
    (key.unwrap().to_owned(), format!("[[keys]]{block}"))
}

/// Makes the client, and runs the sample; runs the scenario against the service itself, and against one
/// whose answers have gained fields.
async fn a_client_in(language: &str) {
    let workshop = Workshop::prepare(language);
    let (generation, sample) = workshop::of_docs(language);
    workshop.sh(&generation);

    let keys = Keys::make().await;
    let without_store = keys.start_without_store().await;
    for from_tomorrow in [false, true] {
        let service = keys.start().await;
        let tomorrow = Tomorrow::before(service.base_url()).await;
        let url = if from_tomorrow {
            tomorrow.base_url()
        } else {
            service.base_url()
        };
        let variables = [
            ("BLOOMGATE_URL", url),
            ("BLOOMGATE_URL_OF_TOMORROW", tomorrow.base_url()),
            ("BLOOMGATE_URL_WITHOUT_STORE", without_store.base_url()),
            ("BLOOMGATE_KEY", &keys.admin),
            ("BLOOMGATE_CHECK_KEY", &keys.check),
            ("BLOOMGATE_SLOW_KEY", &keys.slow),
            ("BLOOMGATE_TOKEN", TOKEN),
        ];
        let said = workshop.run(&["scenario"], &variables);
        workshop::assert_is_transcript(&said, &format!("{language}, later: {from_tomorrow}"));
    }

    let service = keys.start().await;
    let sample = sample.replace(WHERE_SAMPLES_ASK, service.base_url());
    workshop.write_program("sample", &sample);
    let said = workshop.run(&["sample"], &[("BLOOMGATE_KEY", &keys.admin)]);
    assert_eq!(said, "go on\n");
}

macro_rules! languages {
    ($($language:ident)*) => {
        mod languages {
            $(
                #[tokio::test(flavor = "multi_thread")]
                #[ignore = "generates and compiles a client: tests/clients"]
                async fn $language() {
                    super::a_client_in(stringify!($language)).await;
                }
            )*
        }
    };
}

// A new language is a folder of `tests/clients.d`, a section of `docs/clients.md`, and a word here.
languages! { go java python rust typescript }
