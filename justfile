# `just` alone lists these. What CI runs too is written in .ci/run and nowhere else.

_list:
    @just --list

# Format the code
fmt:
    cargo fmt

# Clippy, warnings as errors
lint:
    .ci/run lint

# Licences, bans and origins of the dependencies
deny:
    .ci/run deny

# Every test, or those that match, against a private PostgreSQL
test *arguments:
    tests/run {{ arguments }}

# The middleware of clients, or these of them
middleware *stacks:
    tests/middleware {{ stacks }}

# Generate clients of the document, in these languages or all, and run them
clients *languages:
    tests/clients {{ languages }}

# Fuzz every target, so many seconds in total, or those named
fuzz seconds="600" *targets:
    fuzz/run {{ seconds }} {{ targets }}

# The benchmarks of the core
bench *arguments:
    cargo bench --locked {{ arguments }}

# bloomgate beside its peers, or these rows of it
compare *rows:
    benches/run {{ rows }}

# Write the OpenAPI document anew from the routes
openapi:
    cargo run --locked --quiet -- openapi > target/openapi.json
    mv target/openapi.json openapi/openapi.json

# What CI runs, in its order
ci:
    .ci/run
