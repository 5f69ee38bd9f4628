#!/usr/bin/env bash
# Runs every expression of config/dashboard.json against what a real Prometheus has scraped from a running Weir: each must be
# understood and give a value.
#
#   tests/dashboard/run.sh
#
# Needs prometheus, curl, jq and python3, and a built Weir (WEIR, else target/debug/weir). Ends only what it started.
set -euo pipefail

checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
weir=${WEIR:-${CARGO_TARGET_DIR:-$checkout/target}/debug/weir}
folder=$(mktemp -d)
started=()
end() {
  code=$?
  [ "$code" = 0 ] || tail -n 20 "$folder"/*.log >&2
  for process in "${started[@]}"; do kill "$process" 2>/dev/null || true; done
  wait
  rm -rf "$folder"
  exit "$code"
}
trap end EXIT
fail() { printf 'dashboard: FAILED: %s\n' "$*" >&2; exit 1; }
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
# Tries a command until it succeeds, for a minute at most.
await() { for _ in $(seq 300); do "$@" >/dev/null 2>&1 && return; sleep 0.2; done; return 1; }

# The demo plays the model server of a Weir that counts.
export HOME=$folder XDG_CONFIG_HOME=$folder
demo=$(free_port)
port=$(free_port)
metrics=$(free_port)
prometheus=$(free_port)
(umask 077; "$weir" token >"$folder/demo.token"; "$weir" token >"$folder/adapter.token")
cat >"$folder/adapter.toml" <<END
port = $port
token_file = "adapter.token"
[upstream.local]
url = "http://127.0.0.1:$demo"
api_key_file = "demo.token"
[metrics]
port = $metrics
END
ADAPTER_TOKEN=$(cat "$folder/demo.token") ADAPTER_PORT=$demo "$weir" demo >"$folder/demo.log" 2>&1 &
started+=($!)
await grep -q listening "$folder/demo.log" || fail "the demo does not start"
"$weir" serve --config "$folder/adapter.toml" >"$folder/weir.log" 2>&1 &
started+=($!)
await grep -q listening "$folder/weir.log" || fail "Weir does not start"

cat >"$folder/prometheus.yml" <<END
global: { scrape_interval: 1s }
scrape_configs:
  - job_name: weir
    authorization: { credentials_file: $folder/adapter.token }
    static_configs: [{ targets: ["127.0.0.1:$metrics"] }]
END
prometheus --config.file="$folder/prometheus.yml" --storage.tsdb.path="$folder/data" --log.level=warn \
  --web.listen-address="127.0.0.1:$prometheus" >"$folder/prometheus.log" 2>&1 &
started+=($!)
ask() { curl -fsS --get --data-urlencode "query=$1" "http://127.0.0.1:$prometheus/api/v1/query"; }
value() { ask "$1" | jq -e '[.data.result[].value[1] | tonumber | select(. == .)] | length > 0'; }
turn() {
  curl -s -o /dev/null -H "Authorization: Bearer $(cat "$folder/adapter.token")" -d "$1" "http://127.0.0.1:$port/v1/chat/completions"
}
await value 'up{job="weir"} == 1' || fail "Prometheus cannot scrape Weir: $(ask 'up' || true)"

# A rate needs turns between two scrapes, and a counter exists only once something was counted.
turn '{"messages":[{"role":"user","content":"hi"}]}'
turn '{"model":"nobody","messages":[{"role":"user","content":"hi"}]}'
await value 'sum(weir_turns_total) == 2' || fail "the turns were not scraped"
turn '{"messages":[{"role":"user","content":"hi"}]}'
turn '{"model":"nobody","messages":[{"role":"user","content":"hi"}]}'
await value 'sum(weir_turns_total) == 4' || fail "the turns were not scraped"

count=0
while read -r expression; do
  count=$((count + 1))
  # Grafana fills this in; so short a history wants a short one.
  await value "${expression//\$__rate_interval/30s}" || fail "gives no value: $expression: $(ask "${expression//\$__rate_interval/30s}" || true)"
done < <(jq -r '.panels[].targets[].expr' "$checkout/config/dashboard.json")
[ "$count" -gt 0 ] || fail "the dashboard has no expression"
echo "dashboard: ok: $count expressions give a value"
