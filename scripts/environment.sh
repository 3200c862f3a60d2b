# Sourced by the other scripts: a virtual environment of this checkout, made when it is missing or out of date.
#
# Covers: finding a Python, saying what is missing and how to get it, installing again only when pyproject.toml or the lock changed.
# Does not cover: anything outside the folder it is given; nothing here needs root.

# emlio_find_python: prints the name of a Python that is new enough.
emlio_find_python() {
    local candidate
    for candidate in "${PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11; do
        if [ -n "$candidate" ] && command -v "$candidate" >/dev/null 2>&1 &&
            "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    {
        echo "Python 3.11 or newer is needed and was not found on the PATH."
        echo "On Debian 12 and newer, or Ubuntu 24.04 and newer:"
        echo
        echo "    sudo apt-get install python3 python3-venv"
        echo
        echo "A Python elsewhere can be named: PYTHON=/path/to/python3.11 $0"
    } >&2
    return 1
}

# emlio_make_venv FOLDER: an empty virtual environment, unless there is one.
emlio_make_venv() {
    local folder="$1" python
    if [ -x "$folder/bin/python" ] && [ -x "$folder/bin/pip" ]; then
        return
    fi
    python="$(emlio_find_python)" || return 1
    echo "Making a virtual environment in $folder ($("$python" --version))" >&2
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null || ! "$python" -m venv "$folder"; then
        rm -rf "$folder"
        {
            echo
            echo "This Python cannot make virtual environments: Debian and Ubuntu ship that part on its own. Install it:"
            echo
            echo "    sudo apt-get install python3-venv"
        } >&2
        return 1
    fi
}

# emlio_pip FOLDER ARGUMENT...: pip install in an environment.
emlio_pip() {
    local folder="$1"
    shift
    if ! "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "$@" >&2; then
        echo "The installation failed; what pip says is above. It needs a way to a package index." >&2
        return 1
    fi
}

# emlio_pinned FOLDER LOCK: makes the environment FOLDER hold what LOCK names, checked by hash, and nothing else.
emlio_pinned() {
    local folder="$1" lock="$2" wanted
    wanted="$(cksum <"$lock") $PWD $lock"
    if [ -x "$folder/bin/python" ] && [ "$(cat "$folder/pinned" 2>/dev/null)" = "$wanted" ]; then
        return
    fi
    # Made anew: what an earlier lock or no lock had brought would stay otherwise.
    rm -rf "$folder"
    emlio_make_venv "$folder" || return 1
    echo "Installing what $lock pins into $folder" >&2
    emlio_pip "$folder" --require-hashes --only-binary :all: --requirement "$lock" || return 1
    printf '%s\n' "$wanted" >"$folder/pinned"
}

# emlio_environment FOLDER EXTRAS [REQUIREMENT...]: installs this checkout, editable, into the environment FOLDER.
# With EMLIO_LOCK all else in it is what that lock pins, and EXTRAS only says what the lock was made for.
emlio_environment() {
    local folder="$1" extras="$2" lock="${EMLIO_LOCK:-}"
    shift 2
    local wanted
    wanted="$(cat pyproject.toml benchmarks/pyproject.toml setup.py native/*.[ch] | cksum) $PWD [$extras] $* $lock"
    if [ -n "$lock" ]; then
        emlio_pinned "$folder" "$lock" || return 1
    fi
    if [ -x "$folder/bin/python" ] && [ "$(cat "$folder/installed" 2>/dev/null)" = "$wanted" ]; then
        return
    fi
    emlio_make_venv "$folder" || return 1
    if [ -n "$lock" ]; then
        # setuptools' general warning about editable installations would be printed here, where pip does not keep it.
        PYTHONWARNINGS=ignore emlio_pip "$folder" --no-deps --no-build-isolation --editable . "$@" || return 1
    else
        echo "Installing emlio${extras:+[$extras]}${*:+ and $*} into $folder" >&2
        rm -f "$folder/pinned"
        emlio_pip "$folder" --editable ".${extras:+[$extras]}" "$@" || return 1
    fi
    printf '%s\n' "$wanted" >"$folder/installed"
}
