#!/usr/bin/env bash
# Puts the verdicts of `weir doctor --deep` and of the app maker's own checker (conduck-connect.sh, which you fetch yourself)
# side by side: for `weir demo`, and for every variant of the deliberately broken adapter in tests/broken_adapters.
#
#   scripts/compare_doctor_with_checker.sh CHECKER
#
# Exit code 1 if the two disagree where they ask for the same, or if either is wrong about a variant. Where only the doctor
# asks for a rule, it has to be the stricter of the two.
#
# WEIR            the program (default: cargo builds it)
# BROKEN_ADAPTER  the adapter (default: cargo builds the example broken_adapter)
set -euo pipefail

[ $# = 1 ] && [ -r "$1" ] || { sed -n '2,/^set /p' "$0" | grep '^#' | cut -c3- >&2; exit 2; }
checker=$(realpath "$1")
checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
folder=$(mktemp -d)
running=
end() {
  code=$?
  [ -z "$running" ] || kill "$running" 2>/dev/null || true
  rm -rf "$folder"
  exit "$code"
}
trap end EXIT

if [ -z "${WEIR:-}" ] || [ -z "${BROKEN_ADAPTER:-}" ]; then
  cargo build -q --locked --manifest-path "$checkout/Cargo.toml" --bin weir --example broken_adapter
  built=$(cargo metadata --locked --no-deps --format-version 1 --manifest-path "$checkout/Cargo.toml" |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')/debug
  WEIR=${WEIR:-$built/weir} BROKEN_ADAPTER=${BROKEN_ADAPTER:-$built/examples/broken_adapter}
fi
token=$("$WEIR" token)

# start COMMAND…: starts an adapter in an empty home; `url` is where it listens.
start() {
  # Emptied here: what the last one said must not be read for what this one says.
  : >"$folder/out"
  (cd "$folder" && exec env HOME="$folder" XDG_CONFIG_HOME= ADAPTER_TOKEN="$token" ADAPTER_PORT=0 "$@") \
    >"$folder/out" 2>"$folder/err" &
  running=$!
  for _ in $(seq 100); do
    url=$(sed -n 's/^listening on //p' "$folder/out")
    [ -z "$url" ] || return 0
    sleep 0.1
  done
  cat "$folder/err" >&2
  echo "it does not listen: $*" >&2
  exit 1
}

stop() {
  kill "$running" 2>/dev/null || true
  wait "$running" 2>/dev/null || true
  running=
}

# verdict CODE: the word for an exit code of either program.
verdict() {
  case $1 in
    0) echo pass ;;
    1) echo fail ;;
    *) echo "exit $1" ;;
  esac
}

# compare NAME SCOPE WANTED: asks both about the adapter at $url. SCOPE is `agrees` where both ask for the rule, `stricter` where
# only the doctor does; WANTED are the findings of the doctor that have to fail, or - for none.
compare() {
  local name=$1 scope=$2 wanted=$3 code=0 doctor checked found listed note=
  (cd "$folder" && HOME=$folder XDG_CONFIG_HOME='' ADAPTER_TOKEN=$token ADAPTER_PORT=${url##*:} "$WEIR" doctor --deep --json) \
    >"$folder/doctor.json" 2>/dev/null || code=$?
  doctor=$(verdict "$code")
  found=$(python3 -c '
import json, sys
print(" ".join(one["id"] for one in json.load(sys.stdin)["findings"] if one["verdict"] == "failed") or "-")' \
    <"$folder/doctor.json")
  code=0
  CI=1 HOME=$folder CONDUCK_TOKEN=$token bash "$checker" --check-adapter "$url" --deep </dev/null >"$folder/checker.log" 2>&1 ||
    code=$?
  checked=$(verdict "$code")
  # A red line is a cross and the name of a check; colours are off, since this is no terminal.
  listed=$(grep -oE '✗ \[[A-Z_]+\]' "$folder/checker.log" | tr -d '✗ []' | tr '\n' ' ') || true
  if [ "$found" != "$wanted" ]; then note="DOCTOR IS WRONG"; fi
  if [ "$scope" = stricter ]; then
    [ "$checked" = pass ] || note="${note:+$note, }CHECKER ASKS FOR IT TOO"
  elif [ "$doctor" != "$checked" ]; then
    note="${note:+$note, }DISAGREE"
  fi
  if [ -n "$note" ]; then wrong=1; fi
  case $note,$scope in
    ,agrees) note=agree ;;
    ,stricter) note="stricter, as meant" ;;
  esac
  printf '%-21s  %-6s  %-7s  %-19s %s | %s\n' "$name" "$doctor" "$checked" "$note" "$found" "${listed:--}"
}

wrong=0
printf '%-21s  %-6s  %-7s  %-19s %s\n' adapter doctor checker verdicts 'failed by the doctor | failed by the checker'
start "$WEIR" demo
compare "weir demo" agrees -
stop
while IFS=$'\t' read -r name scope wanted _; do
  start "$BROKEN_ADAPTER" "$name"
  compare "$name" "$scope" "$wanted"
  stop
done < <("$BROKEN_ADAPTER")
exit "$wrong"
