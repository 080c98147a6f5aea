//! The document (OpenAPI): what is said once for all operations.
//!
//! Its conventions keep generators of clients working: an operation has an explicit identifier and
//! one tag, every response is described, nothing is a choice between types or null, and an
//! operation that is open says so with an empty list.

use std::collections::BTreeMap;

use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::{Operation, PathItem, Paths};
use utoipa::openapi::response::ResponseBuilder;
use utoipa::openapi::schema::{KnownFormat, Object, SchemaFormat, Type};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Content, OpenApi, Ref, RefOr, SecurityRequirement, content::ContentBuilder};

use super::access::Need;
use super::problem::{FieldError, PROBLEM_JSON, ProblemBody};
use super::problem_kind::ProblemKind;

const API_KEY: &str = "apiKey";
const BEARER: &str = "bearer";

/// What may happen to every request that needs a key.
const OF_ALL_WITH_KEY: &[ProblemKind] = &[
    ProblemKind::Unauthenticated,
    ProblemKind::Forbidden,
    ProblemKind::TooManyRequests,
    ProblemKind::InternalError,
    ProblemKind::RequestTimeout,
];

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "bloomgate",
        description = "May this be in the set? Answers `definitely-not` or `maybe`, and nothing \
                       else. Whatever was loaded or acknowledged is never `definitely-not`; a \
                       `maybe` wants a look-up.\n\nA response may gain fields, and an enum values: \
                       let your generator tolerate both.",
        contact(name = "bloomgate's contributors"),
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")
    ),
    servers((url = "/", description = "The service that gave this document")),
    tags(
        (name = "items", description = "Checking and adding items"),
        (name = "filters", description = "Filters, and planning them"),
        (name = "gateways", description = "Deciding on the tokens of end users"),
        (name = "operations", description = "Probes and metrics")
    ),
    components(schemas(ProblemBody<'_>, FieldError))
)]
struct Base;

/// The document without its operations.
pub fn base() -> OpenApi {
    let mut document = <Base as utoipa::OpenApi>::openapi();
    let components = document.components.get_or_insert_default();
    components.add_security_scheme(
        API_KEY,
        SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::new("X-API-Key"))),
    );
    components.add_security_scheme(
        BEARER,
        SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build()),
    );
    document.security = Some(either_key());
    document
}

/// Completes an operation of the table: its security, its scope, and how it may be refused. Gives
/// its path.
pub fn complete(paths: &mut Paths, need: Need, refusals: &[ProblemKind]) -> &'static str {
    let mut entered = "";
    for (path, item) in &mut paths.paths {
        // Routes are made once, and their labels live as long as the process.
        entered = Box::leak(path.clone().into_boxed_str());
        for operation in operations_of(item) {
            complete_operation(operation, need, refusals);
        }
    }
    entered
}

fn operations_of(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [
        &mut item.get,
        &mut item.put,
        &mut item.post,
        &mut item.delete,
    ]
    .into_iter()
    .flatten()
}

fn complete_operation(operation: &mut Operation, need: Need, refusals: &[ProblemKind]) {
    let of_all: &[ProblemKind] = match need {
        Need::Nothing => {
            operation.security = Some(Vec::new());
            &[]
        }
        Need::Gateway => {
            operation.security = Some(vec![key_in(API_KEY)]);
            &[ProblemKind::Forbidden]
        }
        Need::AnyKey | Need::Scope(_) => {
            operation.security = Some(either_key());
            OF_ALL_WITH_KEY
        }
    };
    if let Some(scope) = need.scope() {
        let description = operation.description.get_or_insert_default();
        let gap = if description.is_empty() { "" } else { "\n\n" };
        description.push_str(&format!("{gap}Scope: `{}`.", scope.as_str()));
    }
    let mut by_status: BTreeMap<String, Vec<ProblemKind>> = BTreeMap::new();
    for kind in refusals.iter().chain(of_all) {
        let status = kind.status().as_str().to_owned();
        by_status.entry(status).or_default().push(*kind);
    }
    for (status, kinds) in by_status {
        let responses = &mut operation.responses.responses;
        let response = problem_response(&kinds);
        responses.entry(status).or_insert(RefOr::T(response));
    }
}

fn problem_response(kinds: &[ProblemKind]) -> utoipa::openapi::Response {
    let described: Vec<_> = kinds
        .iter()
        .map(|kind| format!("`{}`: {}.", kind.name(), kind.title()))
        .collect();
    let mut response = ResponseBuilder::new()
        .description(described.join(" "))
        .content(PROBLEM_JSON, problem_content());
    if kinds
        .iter()
        .any(|kind| kind.retry_after_seconds().is_some())
    {
        let seconds = Object::builder()
            .schema_type(Type::Integer)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int32)))
            .build();
        let header = HeaderBuilder::new()
            .schema(Some(seconds))
            .description(Some("Seconds after which to try again"));
        response = response.header("Retry-After", header.build());
    }
    response.build()
}

fn problem_content() -> Content {
    let schema = Ref::from_schema_name("Problem");
    ContentBuilder::new().schema(Some(schema)).build()
}

fn either_key() -> Vec<SecurityRequirement> {
    vec![key_in(API_KEY), key_in(BEARER)]
}

fn key_in(scheme: &str) -> SecurityRequirement {
    let no_scopes: [&str; 0] = [];
    SecurityRequirement::new(scheme, no_scopes)
}
