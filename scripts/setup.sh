# Sourced by the other scripts: makes .venv if missing and installs the package into it.
# A stamp of what was installed lets a second call start at once.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

find_python() {
  local candidate
  for candidate in "${PYTHON:-}" python3.11 python3.12 python3.13 python3; do
    if [ -n "$candidate" ] && command -v "$candidate" >/dev/null 2>&1 &&
      "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  echo "sstorch needs Python 3.11, 3.12 or 3.13; set PYTHON to one" >&2
  return 1
}

install() { # install EXTRAS: "" or "[dev]"
  local python stamp wanted
  stamp=.venv/installed$1
  wanted=$(cat pyproject.toml constraints.txt | cksum)
  if [ -x .venv/bin/python ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
    return
  fi
  python=$(find_python)
  [ -x .venv/bin/python ] || "$python" -m venv .venv
  echo "installing sstorch$1 into .venv (a few minutes the first time)" >&2
  .venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".$1"
  echo "$wanted" >"$stamp"
}
