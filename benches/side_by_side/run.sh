#!/usr/bin/env bash
# Measures what Weir costs beside nginx as a plain reverse proxy and prints one table; about five minutes on two idle cores.
# On Debian as root it installs what is missing: nginx-light and wrk; elsewhere install those first. Everything listens on
# 127.0.0.1, on free ports, and is stopped at the end. Nothing else should run meanwhile.
#
#   benches/side_by_side/run.sh              the build of this checkout
#   benches/side_by_side/run.sh --litellm    also LiteLLM's proxy (from PyPI, 750 MB, kept in the cache)
#   benches/side_by_side/run.sh --help       more: other builds beside each other, a part of the rows
#
# WEIR_BENCH_CACHE   where LiteLLM is kept (default: the user's cache folder)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

missing=()
command -v nginx >/dev/null || missing+=(nginx-light)
command -v wrk >/dev/null || missing+=(wrk)
if [ "${#missing[@]}" -gt 0 ]; then
  echo "installing ${missing[*]}"
  apt-get update -q >/dev/null
  # RUNLEVEL=1: nothing that is installed here is started as a service.
  DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -qy --no-install-recommends "${missing[@]}" >/dev/null
fi

arguments=()
for argument in "$@"; do
  if [ "$argument" = --litellm ]; then
    litellm=${WEIR_BENCH_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/weir-bench}/litellm
    if [ ! -x "$litellm/bin/litellm" ]; then
      echo "installing LiteLLM's proxy into $litellm (about two minutes)"
      python3 -m venv "$litellm"
      "$litellm/bin/pip" install -q 'litellm[proxy]'
    fi
    arguments+=(--litellm "$litellm/bin/litellm")
  else
    arguments+=("$argument")
  fi
done

exec cargo bench --features real-servers --bench side_by_side -- "${arguments[@]}"
