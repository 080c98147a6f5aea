# syntax=docker/dockerfile:1

FROM rust:1.95-bookworm AS build
WORKDIR /build

# The dependencies alone, in a layer that changes only with the lock file. Cargo wants every target
# that the manifest names, so each gets a stand-in.
COPY Cargo.toml Cargo.lock ./
RUN mkdir -p src benches tests/it \
    && touch src/lib.rs benches/core.rs tests/it/main.rs \
    && echo 'fn main() {}' > src/main.rs \
    && cargo build --release --locked \
    && rm -r src

# The migrations and the API's document are compiled into the program.
COPY migrations migrations
COPY openapi openapi
COPY src src
# Cargo goes by times: what was copied may be older than what the stand-ins were built at.
RUN touch src/lib.rs src/main.rs \
    && cargo build --release --locked \
    && mkdir data


FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /build/target/release/bloomgate /bloomgate
# A fresh volume takes over the owner of what it is mounted on. 65532 is `nonroot`.
COPY --from=build --chown=65532:65532 /build/data /data

ENV BLOOMGATE_DATA_DIR=/data
VOLUME /data
EXPOSE 8080

# No address is set here: outside of loopback the service wants keys, and only who runs it can make
# them. Make one with `bloomgate key new`, mount the file that holds its digest, and start with
# `--config FILE --listen 0.0.0.0:8080`. The check below asks port 8080 of the container's loopback;
# another port goes into the environment (BLOOMGATE_LISTEN), where the check sees it too.
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s CMD ["/bloomgate", "healthcheck"]
ENTRYPOINT ["/bloomgate"]
