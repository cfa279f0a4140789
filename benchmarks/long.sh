#!/usr/bin/env bash
# The long run: what is too long for every change. By hand or at night, from the root of the repository, in an
# environment as README's test line makes it, on cores that do nothing else:
#
#   benchmarks/long.sh [stage ...]      all stages, or those named, in the order in which they are named
#
# A stage that fails does not stop the others. The last line is a row for "The long run" in README.md here.
set -u -o pipefail
cd "$(dirname "$0")/.."
export PYTHONUNBUFFERED=1
export RAYBENCH_CI=1 # a stage that skips what it is for has not passed

ALL="calibration cluster long slurm faults soak flakes pythons"
FAULT_REPEATS=${FAULT_REPEATS:-10} # of each failure that ends a group
SOAK_TRIALS=${SOAK_TRIALS:-60}     # with a fault of each kind some ten minutes on two cores
FLAKE_RUNS=${FLAKE_RUNS:-3}
PYTHONS=${PYTHONS:-3.12 3.13}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
passed=0 failed=() flaked=()

# Run the rest as a step called $1; it is counted, whatever comes of it.
step() {
    local name=$1
    shift
    echo "=== $name: $*"
    if "$@"; then
        passed=$((passed + 1))
    else
        failed+=("$name")
    fi
}

# Of pytest's codes 5 is: nothing was selected. Here that is a failure: a stage that has lost its tests.
tests() { python -m pytest --durations=10 "$@"; }

calibration() { step calibration tests -m long tests/calibration; }

slurm() { step slurm tests -m long tests/ray/test_slurm.py; }

# Also what of them belongs to every change: .ci/run leaves it out until something that it is about has changed.
cluster() { step cluster tests -m "not gpu" tests/cluster; }

# Everything else that is marked so.
long() {
    local others="--ignore=tests/calibration --ignore=tests/cluster --ignore=tests/ray/test_slurm.py"
    step long tests -m long tests $others
}

# Failures that end a group, many times each: none may lose or invent a trial.
faults() {
    local files
    files=$(grep -rl --include='test_*.py' RAYBENCH_FAULT_REPEATS tests)
    step faults env RAYBENCH_FAULT_REPEATS="$FAULT_REPEATS" \
        python -m pytest --timeout=$((300 + 150 * FAULT_REPEATS)) -k ends_with_a_failure ${files:-tests/none}
}

soak() {
    local seed=$RANDOM
    step "soak-seed-$seed" python -m benchmarks.soak --trials "$SOAK_TRIALS" --seed "$seed"
}

# What every change must pass, so many times: it names as flakes what failed and passed at the second try.
flakes() {
    local run name
    for run in $(seq "$FLAKE_RUNS"); do
        step "ci-run-$run" eval ".ci/run 2>&1 | tee $folder/run.txt"
        while read -r name; do flaked+=("$name (run $run)"); done < <(sed -n 's/^ran twice: //p' "$folder/run.txt")
    done
}

# As a user of another Python has it: README's first line, and then the unit tests.
pythons() {
    local version interpreter install
    install=$(grep -m1 '^pip install .*scaling$' README.md)
    install=${install%%&&*}
    for version in $PYTHONS; do
        interpreter=$(interpreter_of "$version")
        if [ -z "$interpreter" ]; then
            echo "no Python $version here"
            failed+=("python-$version-missing")
            continue
        fi
        step "python-$version" with_python "$interpreter" "$folder/venv-$version" "$install"
    done
}

# The program of Python $1: on the path, or the newest of pyenv's; nothing where there is none.
interpreter_of() {
    if "python$1" -c '' 2>/dev/null; then
        command -v "python$1"
    elif command -v pyenv >/dev/null; then
        local found
        found=$(pyenv versions --bare | grep "^${1//./\\.}\." | sort -V | tail -n 1)
        [ -z "$found" ] || echo "$(pyenv root)/versions/$found/bin/python"
    fi
}

# $1: the interpreter, $2: where its environment is made, $3: the line that installs.
with_python() (
    "$1" -m venv "$2" || exit 1
    export PATH="$2/bin:$PATH"
    eval "$3 --quiet" && pip check &&
        python -m raybench.study scaling --smoke --output "$2/smoke" &&
        eval "${3/-e ./-e '.[test]'} --quiet" &&
        python -m pytest tests/unit
)

row() {
    local commit cpu all_failed all_flaked
    commit=$(git rev-parse --short HEAD)
    [ -z "$(git status --porcelain)" ] || commit="$commit and changes"
    cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
    all_failed=$(printf '%s, ' "${failed[@]+"${failed[@]}"}")
    all_flaked=$(printf '%s, ' "${flaked[@]+"${flaked[@]}"}")
    [ ${#failed[@]} -gt 0 ] || all_failed="none, "
    [ ${#flaked[@]} -gt 0 ] || all_flaked="none, "
    echo "| $(date +%F) | $commit | $(nproc) cores of ${cpu:-an unknown CPU} | ${stages// /, } | $passed |" \
        "${all_failed%, } | ${all_flaked%, } |"
}

stages=${*:-$ALL}
for stage in $stages; do
    case " $ALL " in
        *" $stage "*) ;;
        *)
            echo "no stage $stage; there are: $ALL" >&2
            exit 2
            ;;
    esac
done
for stage in $stages; do
    "$stage"
done
row
[ ${#failed[@]} -eq 0 ]
