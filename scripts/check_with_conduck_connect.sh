#!/usr/bin/env bash
# Runs the app maker's own checker (conduck-connect.sh, which you fetch yourself) against Weir.
#
#   scripts/check_with_conduck_connect.sh CHECKER [URL]
#
# With a URL: against the adapter that runs there already; its token is in CONDUCK_TOKEN.
# Without: starts `weir demo` on a free port and checks that; and where WEIR_LLAMA_SERVER and WEIR_LLAMA_MODELS are set
# (the two lines that tests/real/install_llama_server.sh prints), also Weir in front of a real llama-server, once with a
# text model and once with one that sees pictures. The tiny test model that sees pictures can't read the digits that the
# checker shows it, so there IMAGE_INPUT has to stay UNVERIFIED, and everything else green.
#
# Prints the summary line of each run. Exit code 1 if anything is otherwise than expected.
#
# WEIR  the program to run (default: cargo builds it)
set -euo pipefail

[ $# -ge 1 ] && [ $# -le 2 ] && [ -r "$1" ] || { sed -n '2,/^set /p' "$0" | grep '^#' | cut -c3- >&2; exit 2; }
checker=$(realpath "$1")
checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
folder=$(mktemp -d)
started=()
wrong=0
end() {
  code=$?
  [ "${#started[@]}" = 0 ] || kill "${started[@]}" 2>/dev/null || true
  rm -rf "$folder"
  exit "$code"
}
trap end EXIT

# run_checker NAME FAILED ARGUMENT…: runs the checker and prints its summary line, which has to hold each word of $expected
# and so many failed checks.
run_checker() {
  local name=$1 failed=$2 log=$folder/checker.log code=0 line word as_expected=yes
  # A home of its own: the checker shall find nothing of this user's.
  CI=1 HOME=$folder CONDUCK_TOKEN=$token bash "$checker" "${@:3}" </dev/null >"$log" 2>&1 || code=$?
  line=$(grep '^CONDUCK_CHECK_' "$log" | tail -n 1) || true
  printf '%s: %s\n' "$name" "${line:-no summary line}"
  for word in $expected "failed=$failed" "exit=$code"; do
    if [[ " $line " != *" $word "* ]]; then
      printf '%s: NOT AS EXPECTED, which is %s\n' "$name" "$word"
      as_expected=no
    fi
  done
  # Red checks and nothing else make the checker's exit code.
  if [ "$code" != "$((failed > 0))" ]; then
    printf '%s: NOT AS EXPECTED: exit code %s\n' "$name" "$code"
    as_expected=no
  fi
  if [ "$as_expected" = no ]; then
    sed 's/^/    /' "$log"
    wrong=1
  fi
}

# check NAME IMAGE_INPUT FAILED: both questions that the checker answers, about the adapter at $url: does it keep the
# contract, and can the app talk to it.
check() {
  local expected="core=PASS history_image=PASS stream=PASS image_input=$2"
  run_checker "$1" "$3" --check-adapter "$url" --deep
  expected="wire=PASS models=PASS chat=PASS"
  run_checker "$1" 0 --check-server "$url"
}

if [ $# = 2 ]; then
  token=${CONDUCK_TOKEN:?the token of the adapter}
  CI=1 CONDUCK_TOKEN=$token bash "$checker" --check-adapter "$2" --deep </dev/null
  exit
fi

if [ -z "${WEIR:-}" ]; then
  cargo build -q --locked --manifest-path "$checkout/Cargo.toml"
  WEIR=$(cargo metadata --locked --no-deps --format-version 1 --manifest-path "$checkout/Cargo.toml" |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')/debug/weir
fi
token=$("$WEIR" token)

# adapter COMMAND [VARIABLE=VALUE …]: starts Weir; `url` is where it listens.
adapter() {
  # Emptied here: what the last one said must not be read for what this one says.
  : >"$folder/weir.out"
  # In an empty folder, or a configuration that lies here would be read.
  (cd "$folder" && exec env HOME="$folder" XDG_CONFIG_HOME= ADAPTER_TOKEN="$token" ADAPTER_PORT=0 "${@:2}" "$WEIR" "$1") \
    >"$folder/weir.out" 2>"$folder/weir.err" &
  started+=($!)
  for _ in $(seq 100); do
    url=$(sed -n 's/^listening on //p' "$folder/weir.out")
    [ -z "$url" ] || return 0
    sleep 0.1
  done
  cat "$folder/weir.err" >&2
  echo "Weir does not listen" >&2
  exit 1
}

# model_server ARGUMENT…: starts llama-server; `server` is where it listens.
model_server() {
  local port
  port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  server=http://127.0.0.1:$port
  "$WEIR_LLAMA_SERVER" --host 127.0.0.1 --port "$port" --alias tiny-chat -c 8192 -t 1 --offline --no-webui "$@" \
    >"$folder/llama.log" 2>&1 &
  started+=($!)
  for _ in $(seq 300); do
    curl -sf "$server/health" >/dev/null && return 0
    sleep 0.1
  done
  tail -n 20 "$folder/llama.log" >&2
  echo "llama-server does not answer" >&2
  exit 1
}

adapter demo
check "weir demo" DECLINED 0
if [ -n "${WEIR_LLAMA_SERVER:-}" ] && [ -n "${WEIR_LLAMA_MODELS:-}" ]; then
  model_server -m "$WEIR_LLAMA_MODELS/tiny-chat.gguf"
  adapter serve ADAPTER_UPSTREAM__LOCAL__URL="$server"
  check "llama-server, text" DECLINED 0
  model_server -m "$WEIR_LLAMA_MODELS/tiny-chat.gguf" --mmproj "$WEIR_LLAMA_MODELS/tiny-mmproj.gguf"
  adapter serve ADAPTER_UPSTREAM__LOCAL__URL="$server"
  check "llama-server, pictures" UNVERIFIED 1
else
  echo "llama-server: not run, since WEIR_LLAMA_SERVER and WEIR_LLAMA_MODELS are not set"
fi
exit "$wrong"
