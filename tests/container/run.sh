#!/usr/bin/env bash
# Builds the image and runs it as compose.yaml says, in front of a real llama-server.
#
#   tests/container/run.sh
#
# Needs root (for the base image and the owner of a secret), docker, docker compose in either version, debootstrap,
# curl, jq, python3 and ss. Ends only the containers and the server that it started.
#
# BUILD_IMAGE  the image to build in (default: the one that base_images.sh makes)
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
checkout=$(cd "$here/../.." && pwd)
image=weir-test
size_cap=$((25 * 1024 * 1024))
patience=60
project=weir-test-$$
passed=0

compose=(docker compose)
docker compose version >/dev/null 2>&1 || compose=(docker-compose)
compose+=(-p "$project" --project-directory "$checkout" -f "$checkout/compose.yaml" -f "$here/compose.test.yaml")

fail() {
  printf 'container: FAILED: %s\n' "$*" >&2
  exit 1
}
pass() {
  passed=$((passed + 1))
  printf 'container: ok: %s\n' "$*"
}
# $1 is expected, $2 was found, the rest says what.
is() { if [ "$1" = "$2" ]; then pass "${*:3} ($2)"; else fail "${*:3}: expected $1, found $2"; fi; }
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
# Tries a command once a second until it succeeds or patience ends.
await() { for _ in $(seq "$patience"); do "$@" >/dev/null 2>&1 && return; sleep 1; done; return 1; }

folder=$(mktemp -d)
export WEIR_TEST_IMAGE=$image WEIR_TEST_FOLDER=$folder
server_process=
demo_container=
end() {
  code=$?
  [ "$code" = 0 ] || "${compose[@]}" logs --no-color 2>/dev/null | tail -n 30 >&2 || true
  "${compose[@]}" down -v -t 2 >/dev/null 2>&1 || true
  [ -z "$demo_container" ] || docker rm -f "$demo_container" >/dev/null 2>&1 || true
  [ -z "$server_process" ] || kill "$server_process" 2>/dev/null || true
  rm -rf "$folder"
  exit "$code"
}
trap end EXIT

# === the image

build_image=${BUILD_IMAGE:-$("$here/base_images.sh")}
# The crates come over the network of this machine, as they do outside.
docker build --network host --build-arg "BUILD_IMAGE=$build_image" -t "$image" "$checkout" >"$folder/build.log" 2>&1 ||
  { tail -n 30 "$folder/build.log" >&2; fail "the image does not build"; }

size=$(docker image inspect -f '{{.Size}}' "$image")
[ "$size" -le "$size_cap" ] || fail "the image has $size bytes, more than $size_cap"
pass "the image has $size bytes, at most $size_cap are allowed"
is 10001:10001 "$(docker image inspect -f '{{.Config.User}}' "$image")" "the image's user is not root"
content=$(docker create "$image")
files=$(docker export "$content" | tar t | grep -v '/$' | grep -vE '^(\.dockerenv|dev/console|etc/(hosts|hostname|resolv.conf|mtab))$' | sort | xargs)
docker rm "$content" >/dev/null
is "etc/ssl/certs/ca-certificates.crt weir" "$files" "the image holds the program and certificates, so no shell"

# === in front of a real model server, as compose.yaml runs it

mapfile -t llama < <("$here/../real/install_llama_server.sh")
server_port=$(free_port)
"${llama[0]}" --host 127.0.0.1 --port "$server_port" -m "${llama[1]}/tiny-chat.gguf" --alias tiny-chat -c 8192 -t 1 \
  --offline --no-webui >"$folder/llama.log" 2>&1 &
server_process=$!
await curl -sf "http://127.0.0.1:$server_port/health" || fail "llama-server does not answer"

port=$(free_port)
printf '%s\n' "$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')" >"$folder/adapter.token"
chmod 0400 "$folder/adapter.token"
chown 10001 "$folder/adapter.token"
# A name instead of 127.0.0.1: a static binary must be able to look one up, too.
sed -e "s|^port .*|port = $port|" -e "s|^url .*|url = \"http://localhost:$server_port\"|" \
  "$checkout/config/container/adapter.toml" >"$folder/adapter.toml"
chmod 0644 "$folder/adapter.toml"

"${compose[@]}" up -d --no-build weir >"$folder/up.log" 2>&1 || { cat "$folder/up.log" >&2; fail "compose does not start it"; }
container=$("${compose[@]}" ps -q weir)
state() { docker inspect -f "$1" "$container"; }
healthy() { [ "$(state '{{.State.Health.Status}}')" = healthy ]; }
await healthy || fail "the health check says $(state '{{json .State.Health}}')"
pass "its own health check calls it healthy"

is host "$(state '{{.HostConfig.NetworkMode}}')" "network"
is true "$(state '{{.HostConfig.ReadonlyRootfs}}')" "read-only root"
is '["ALL"]' "$(state '{{json .HostConfig.CapDrop}}')" "dropped capabilities"
process=$(state '{{.State.Pid}}')
is "10001 10001 10001 10001" "$(awk '/^Uid:/ {print $2, $3, $4, $5}' "/proc/$process/status")" "user of the process"
is 0000000000000000 "$(awk '/^CapEff:/ {print $2}' "/proc/$process/status")" "capabilities of the process"
is 1 "$(awk '/^NoNewPrivs:/ {print $2}' "/proc/$process/status")" "no new privileges"
is "127.0.0.1:$port" "$(ss -ltnpH | grep "pid=$process," | awk '{print $4}' | xargs)" "all listening sockets of the process"

ask() { # ask PORT prints the reply; the token comes from standard input, since arguments are public
  curl -sf -m 60 -K - -d '{"messages":[{"role":"user","content":"Reply with exactly: pong"}],"stream":false}' \
    "http://127.0.0.1:$1/v1/chat/completions" | jq -r '.choices[0].message.content'
}
authorization() { printf 'header = "Authorization: Bearer %s"\n' "$(cat "$folder/adapter.token")"; }
is pong "$(authorization | ask "$port")" "a turn of the real model is answered"
is 401 "$(curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:$port/v1/models")" "without a token"
if docker logs "$container" 2>&1 | grep -qF "$(cat "$folder/adapter.token")"; then fail "the token is in the log"; fi
pass "the token is not in the log"

docker stop -t 20 "$container" >/dev/null
is 0 "$(state '{{.State.ExitCode}}')" "exit code after docker stop"

# === the demo, without any file

demo_port=$(free_port)
demo_container=$(ADAPTER_TOKEN=$(cat "$folder/adapter.token") ADAPTER_PORT=$demo_port docker run -d --network host --read-only \
  --cap-drop ALL --security-opt no-new-privileges -e ADAPTER_TOKEN -e ADAPTER_PORT "$image" demo)
lists() { authorization | curl -sf -K - "http://127.0.0.1:$demo_port/v1/models"; }
await lists || fail "the demo does not answer"
is pong "$(authorization | ask "$demo_port")" "a turn of the demo is answered"
docker stop -t 20 "$demo_container" >/dev/null
is 0 "$(docker inspect -f '{{.State.ExitCode}}' "$demo_container")" "exit code of the demo after docker stop"

printf 'container: %s passed, 0 failed\n' "$passed"
