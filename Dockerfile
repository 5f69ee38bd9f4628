# One static binary and the certificates of the public authorities, nothing else: no shell, no package manager, no C
# library to update. The defaults pull public images; a machine that pulls none names its own BUILD_IMAGE, which needs
# cargo, a C compiler and /etc/ssl/certs/ca-certificates.crt.
ARG BUILD_IMAGE=rust:1-bookworm
ARG RUNTIME_IMAGE=scratch

FROM ${BUILD_IMAGE} AS build
WORKDIR /build
# A static binary needs a named target: without one the flag would reach the procedural macros too, which can't be static.
ENV RUSTFLAGS="-C target-feature=+crt-static" CARGO_INCREMENTAL=0
COPY Cargo.toml Cargo.lock ./
# The dependencies first, against an empty crate: this layer stays until one of the two files changes. The tables in double
# brackets name tests and benchmarks, whose files are not here.
RUN sed -i '/^\[\[/,/^$/d' Cargo.toml \
 && mkdir src && touch src/lib.rs && echo 'fn main() {}' > src/main.rs \
 && cargo build --release --locked --target "$(rustc --print host-tuple)" \
 && rm -r src target/*/release/.fingerprint/weir-* target/*/release/weir
COPY config/defaults.toml config/failures.toml config/
COPY src src
RUN cargo build --release --locked --target "$(rustc --print host-tuple)" \
 && mkdir -p /image/etc/ssl/certs \
 && cp target/*/release/weir /image/weir \
 && cp /etc/ssl/certs/ca-certificates.crt /image/etc/ssl/certs/

FROM ${RUNTIME_IMAGE}
COPY --from=build /image /
# Not root, and no name needed: the image has no list of users.
USER 10001:10001
# Weir listens on 127.0.0.1 alone, so the container runs on the host's network; there is no port to expose.
HEALTHCHECK --interval=30s --timeout=6s --start-period=10s --retries=3 \
  CMD ["/weir", "healthcheck", "--config", "/etc/weir/adapter.toml"]
ENTRYPOINT ["/weir"]
CMD ["serve", "--config", "/etc/weir/adapter.toml"]
