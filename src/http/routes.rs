//! The table of routes: what there is, what it needs, and how it may be refused.
//!
//! The document is made from the same table, so that the two cannot drift apart. A route is
//! entered through [`Table::enter`] alone, which puts its gate before it.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::handler::Handler;
use axum::routing::{any, get};
use tower_http::compression::CompressionLayer;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter, UtoipaMethodRouterExt};
use utoipa_axum::routes;
use utoipa_swagger_ui::{Config, SwaggerUi};

use super::AppState;
use super::access::Need;
use super::body::refuse;
use super::document;
use super::gate::Gates;
use super::handlers::{
    add, authz, bulk_load, check, check_many, docs, filters, metrics, plan, probes, remove,
};
use super::problem::Problem;
use super::problem_kind::ProblemKind::{
    self, BodyTimeout, BodyTooLarge, DeclaredByConfig, DeclaredOtherwise, InvalidField,
    InvalidItem, InvalidToken, MalformedBody, MethodNotAllowed, MissingToken, NotFound,
    OverMemoryBudget, StoreUnavailable, TooManyAdds, Undecided, UnknownFilter,
    UnsupportedMediaType,
};
use crate::config::Scope;

/// What a check needs.
pub(super) const CHECK: Need = Need::Scope(Scope::Check);
const ADD: Need = Need::Scope(Scope::Add);
const READ: Need = Need::Scope(Scope::Read);
const ADMIN: Need = Need::Scope(Scope::Admin);

/// How a check may be refused. Never for the sake of the store.
const OF_CHECKS: &[ProblemKind] = &[
    MalformedBody,
    UnknownFilter,
    BodyTimeout,
    BodyTooLarge,
    UnsupportedMediaType,
    InvalidField,
    InvalidItem,
];

/// How a token may be refused.
const OF_TOKENS: &[ProblemKind] = &[MissingToken, InvalidToken, Undecided];

/// How an add may be refused.
const OF_ADDS: &[ProblemKind] = &[
    MalformedBody,
    UnknownFilter,
    BodyTimeout,
    BodyTooLarge,
    UnsupportedMediaType,
    InvalidField,
    InvalidItem,
    StoreUnavailable,
    TooManyAdds,
];

const OF_REMOVALS: &[ProblemKind] = &[
    MalformedBody,
    UnknownFilter,
    BodyTimeout,
    BodyTooLarge,
    UnsupportedMediaType,
    InvalidField,
    InvalidItem,
    StoreUnavailable,
];

const OF_BULK_LOADS: &[ProblemKind] = &[
    MalformedBody,
    UnknownFilter,
    BodyTimeout,
    UnsupportedMediaType,
    InvalidField,
    InvalidItem,
    StoreUnavailable,
    TooManyAdds,
];

const OF_DESCRIPTIONS: &[ProblemKind] = &[UnknownFilter, InvalidField, StoreUnavailable];

const OF_PUTS: &[ProblemKind] = &[
    MalformedBody,
    BodyTimeout,
    DeclaredOtherwise,
    BodyTooLarge,
    UnsupportedMediaType,
    InvalidField,
    OverMemoryBudget,
    StoreUnavailable,
];

const OF_REBUILDS: &[ProblemKind] = &[
    UnknownFilter,
    InvalidField,
    OverMemoryBudget,
    StoreUnavailable,
];

const OF_DELETES: &[ProblemKind] = &[
    UnknownFilter,
    DeclaredByConfig,
    InvalidField,
    StoreUnavailable,
];

/// The operations, and the document that describes them.
pub fn operations(gates: &Gates) -> OpenApiRouter<Arc<AppState>> {
    Table::new(gates)
        .enter(CHECK, OF_CHECKS, routes!(check::check_item))
        .enter(CHECK, OF_CHECKS, routes!(check::check_items))
        .enter(CHECK, OF_CHECKS, routes!(check_many::check_many))
        .enter(ADD, OF_ADDS, routes!(add::add_item))
        .enter(ADD, OF_ADDS, routes!(add::add_items))
        .enter_stream(ADD, OF_BULK_LOADS, routes!(bulk_load::bulk_load))
        .enter(ADMIN, OF_REMOVALS, routes!(remove::remove_item))
        .enter(READ, &[], routes!(filters::list_filters))
        .enter(READ, OF_DESCRIPTIONS, routes!(filters::describe_filter))
        .enter(ADMIN, OF_PUTS, routes!(filters::put_filter))
        .enter(ADMIN, OF_REBUILDS, routes!(filters::rebuild_filter))
        .enter(ADMIN, OF_DELETES, routes!(filters::delete_filter))
        .enter(READ, &[InvalidField], routes!(plan::plan_filter))
        .enter(
            Need::Gateway,
            OF_TOKENS,
            of_any_method(routes!(authz::authorize)),
        )
        .enter(Need::Nothing, &[], routes!(probes::livez))
        .enter(Need::Nothing, &[], routes!(probes::readyz))
        .enter(
            READ,
            &[],
            routes!(metrics::get_metrics).layer(CompressionLayer::new()),
        )
        .router
}

/// The operations, and what stands beside them: the document, its page, the pages of problems,
/// and what is answered where nothing is.
pub fn router(gates: &Gates) -> Router<Arc<AppState>> {
    let (operations, document) = operations(gates).split_for_parts();
    let decide = any(authz::authorize).layer(gates.of(Need::Gateway, authz::PATH));
    let operations = authz::PATHS_BESIDE
        .into_iter()
        .fold(operations, |routes, path| {
            routes.route(path, decide.clone())
        });
    let page = SwaggerUi::new("/docs").config(Config::from("/openapi.json"));
    operations
        .route(
            "/openapi.json",
            get(docs::document(&document))
                .layer(CompressionLayer::new())
                .layer(gates.of(READ, "/openapi.json")),
        )
        .route(
            "/problems/{name}",
            get(docs::problem_page).layer(gates.of(Need::AnyKey, "/problems/{name}")),
        )
        .merge(Router::from(page).layer(gates.of(READ, "/docs")))
        .method_not_allowed_fallback(method_not_allowed.layer(gates.of_no_route()))
        .fallback(not_found.layer(gates.of_no_route()))
}

/// The operation behind every method; the document shows the one that it is written for.
fn of_any_method(
    (schemas, paths, _): UtoipaMethodRouter<Arc<AppState>>,
) -> UtoipaMethodRouter<Arc<AppState>> {
    (schemas, paths, any(authz::authorize))
}

struct Table<'g> {
    gates: &'g Gates,
    router: OpenApiRouter<Arc<AppState>>,
}

impl<'g> Table<'g> {
    fn new(gates: &'g Gates) -> Self {
        Self {
            gates,
            router: OpenApiRouter::with_openapi(document::base()),
        }
    }

    /// Enters an operation: what it needs, and how it may be refused beside what may happen to
    /// every request.
    fn enter(
        self,
        need: Need,
        refusals: &[ProblemKind],
        mut operation: UtoipaMethodRouter<Arc<AppState>>,
    ) -> Self {
        let path = document::complete(&mut operation.1, need, refusals);
        if need == Need::Nothing {
            // Whoever needs no key is told of a wrong method, and not of a missing key.
            operation.2 = operation.2.fallback(method_not_allowed);
        }
        let gate = self.gates.of(need, path);
        self.add(operation.layer(gate))
    }

    /// Enters an operation whose body is a stream without an end in sight.
    fn enter_stream(
        self,
        need: Need,
        refusals: &[ProblemKind],
        mut operation: UtoipaMethodRouter<Arc<AppState>>,
    ) -> Self {
        let path = document::complete(&mut operation.1, need, refusals);
        let gate = self.gates.without_deadline(need, path);
        self.add(operation.layer(gate))
    }

    fn add(self, operation: UtoipaMethodRouter<Arc<AppState>>) -> Self {
        Self {
            router: self.router.routes(operation),
            ..self
        }
    }
}

async fn not_found(request: Request) -> Problem {
    let (parts, body) = request.into_parts();
    let problem = Problem::new(
        NotFound,
        "no operation has this path; /openapi.json lists those that there are",
    );
    refuse(problem, &parts.headers, body).await
}

async fn method_not_allowed(request: Request) -> Problem {
    let (parts, body) = request.into_parts();
    let problem = Problem::new(
        MethodNotAllowed,
        "the path does not take this method; the header Allow lists those that it takes",
    );
    refuse(problem, &parts.headers, body).await
}
