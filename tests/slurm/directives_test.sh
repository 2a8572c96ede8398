#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Directives in batch scripts: conf/slurm/job_submit.lua alone, in a plain Lua, and in slurmctld on
# a real cluster.
#   directives_test.sh BIN_DIR
set -uo pipefail
JOB_SUBMIT=$(cd "$(dirname "$0")/../.." && pwd)/conf/slurm/job_submit.lua

# --- the parser ---
lua_tests() {
  local lua
  lua=$(command -v lua5.1 || command -v lua5.4 || command -v lua5.3 || command -v lua) || { echo "############ job_submit.lua IS NOT TESTED BY ITSELF: no lua here (make slurm-deps) ############"; skip 'job_submit.lua by itself' 'no lua'; return; }
  # said LINE...: prints the job file for a script of these lines, or "refused: ..."; in the
  # directory /pfs/u.
  said() {
    printf '%s\n' '#!/bin/bash' "$@" >"$S/script"
    printf '%s\n' 'slurm = {SUCCESS = 0, ERROR = -1, log_user = function() end}
dofile(arg[1])
local file = io.open(arg[2]); local script = file:read("*a"); file:close()
local lines, why = efs_directives.read(script, "/pfs/u")
print(lines and table.concat(lines, "\n") or why and "refused: " .. why or "nothing")' >"$S/try.lua"
    "$lua" "$S/try.lua" "$JOB_SUBMIT" "$S/script" 2>&1
  }
  # made_in DIRECTORY: prints the directory of the inputs of a script with a directive, or the
  # reason of its rejection.
  made_in() {
    printf '%s\n' 'slurm = {SUCCESS = 0, ERROR = -1, log_user = function() end}' 'dofile(arg[1])' 'local lines, why = efs_directives.read("#!/bin/sh\n#EFS stage_in type=file source=a\n", arg[2])' 'print(why or lines[3])' >"$S/where.lua"
    "$lua" "$S/where.lua" "$JOB_SUBMIT" "$1" 2>&1
  }
  gives() {  # gives NAME PATTERN LINE...
    local name=$1 pattern=$2 text; shift 2
    text=$(said "$@")
    if grep -qE -- "$pattern" <<<"$text"; then ok; else fail "$name" "$text"; fi
  }
  is() {  # is NAME TEXT LINE...: exactly
    local name=$1 wanted=$2 text; shift 2
    text=$(said "$@")
    if [ "$text" = "$wanted" ]; then ok; else fail "$name" "$text"; fi
  }
  is 'a script without directives' nothing '#SBATCH -N2' 'srun x' '# efs'
  is 'words that only begin like one' nothing '#EFSTAB x' 'true'
  is 'all of it' 'global-settings:
  mount-dir: /efs
  root-dir: "/pfs/u"
  results-dir: "/pfs/out"
resources:
  - path: "in/a"
  - path: "sub"
outputs:
  - path: "r/x"
    inputs: true
backends:
  - id: memory
    capacity: "1.5TB"' '#EFS jobdw type=scratch access_mode=private capacity=1.5TB' '#SBATCH -N1' '#EFS stage_in type=file source=in/a' '#EFS stage_in type=directory source=/pfs/u/sub/ destination=$EFS_MOUNT/sub' '' '#EFS stage_out type=file source=$DW_JOB_PRIVATE/r/x destination=/pfs/out/r/x' 'srun x'
  is 'results beside their inputs' 'global-settings:
  mount-dir: /efs
  root-dir: "/pfs/set"
  in-place: true
resources:
  - path: "in"
outputs:
  - path: "in/state"
    inputs: true
  - path: "out"
    inputs: true' '#EFS stage_in type=directory source=/pfs/set/in destination=$EFS_MOUNT/in' '#EFS stage_out type=file source=$EFS_MOUNT/in/state destination=/pfs/set/in/state' '#EFS stage_out type=directory source=$EFS_MOUNT/out destination=/pfs/set/out'
  gives 'results beside inputs of another name' 'refused: results cannot go to /pfs/u, where inputs are' '#EFS stage_in type=file source=/pfs/u/a destination=$EFS_MOUNT/b' '#EFS stage_out type=file source=$EFS_MOUNT/r destination=/pfs/u/r'
  gives 'without results nothing goes back' 'flags: temporary' '#EFS stage_in type=file source=in/a'
  gives 'inputs of elsewhere' 'root-dir: "/data/set"' '#EFS stage_in type=directory source=/data/set/in destination=${EFS_MOUNT}/in'
  gives 'dots in paths' 'path: "a"' '#EFS stage_in type=file source=./x/../a'
  gives 'blanks and quotes' 'path: "my \\"file\\""' "#EFS stage_in type=file source='my \"file\"'"
  gives 'backslashes' 'path: "a\\\\b"' '#EFS stage_in type=file source="a\b"'
  gives 'a line end of DOS' 'path: "a"' $'#EFS stage_in type=file source=a\r'
  # Rejected directives, with their line.
  gives 'an unknown verb' 'refused: line 3: unknown verb "persistentdw"' '#SBATCH -N1' '#EFS persistentdw name=x'
  gives 'no verb' 'refused: line 2: a verb must follow' '#EFS'
  gives 'an unknown key' 'refused: line 2: unknown key "sauce"' '#EFS stage_in type=file sauce=a'
  gives 'a key twice' 'refused: line 2: source is there twice' '#EFS stage_in type=file source=a source=b'
  gives 'no key' 'refused: line 2: cannot read "a b"' '#EFS stage_in a b'
  gives 'a quote that does not end' 'refused: line 2: cannot read' '#EFS stage_in type=file source="a'
  is 'a list' 'global-settings:
  mount-dir: /efs
  root-dir: "/data/set"
  in-place: true
resources:
  - path: "in"
  - list: "/pfs/u/names"
outputs:
  - path: "**"
    flags: temporary' '#EFS stage_in type=directory source=/data/set/in destination=$EFS_MOUNT/in' '#EFS stage_in type=list source=names'
  gives 'a list alone' 'root-dir: "/pfs/u"' '#EFS stage_in type=list source=/pfs/names'
  gives 'a list with a destination' 'refused: line 2: a list has no destination' '#EFS stage_in type=list source=a destination=$EFS_MOUNT/a'
  gives 'a list, and inputs of elsewhere' 'refused: line 3: all inputs hang below one directory' '#EFS stage_in type=list source=a' '#EFS stage_in type=file source=/x/b destination=$EFS_MOUNT/b'
  gives 'a list of results' 'refused: line 2: type=list is for stage_in' '#EFS stage_out type=list source=$EFS_MOUNT/a destination=/pfs/u/a'
  gives 'a list of no name' 'refused: line 2: stage_in needs source' '#EFS stage_in type=list'
  gives 'no type' 'refused: line 2: stage_in needs type' '#EFS stage_in source=a'
  gives 'no source' 'refused: line 2: stage_in needs source' '#EFS stage_in type=file'
  is 'another name' 'global-settings:
  mount-dir: /efs
  root-dir: "/pfs"
resources:
  - path: "a"
    as: "in/b"
outputs:
  - path: "**"
    flags: temporary' '#EFS stage_in type=file source=/pfs/a destination=$EFS_MOUNT/in/b'
  gives 'half a name' 'as: "a"' '#EFS stage_in type=file source=/pfs/aa destination=$EFS_MOUNT/a'
  gives 'another name of what is here' 'path: "sub/a"' '#EFS stage_in type=file source=sub/a destination=$EFS_MOUNT/b'
  gives 'beside an input of elsewhere' 'refused: line 3: all inputs hang below one directory' '#EFS stage_in type=file source=/x/b destination=$EFS_MOUNT/b' '#EFS stage_in type=file source=/y/c destination=$EFS_MOUNT/d'
  is 'all that is in a directory, on the mount itself' 'global-settings:
  mount-dir: /efs
  root-dir: "/pfs/u/a"
  results-dir: "/pfs/out"
resources:
  - path: "."
outputs:
  - path: "r"
    inputs: true' '#EFS stage_in type=directory source=/pfs/u/a/ destination=$EFS_MOUNT/' '#EFS stage_out type=file source=$EFS_MOUNT/r destination=/pfs/out/r'
  gives 'a file as the mount itself' 'refused: line 2: name something below' '#EFS stage_in type=file source=/pfs/u/a destination=$EFS_MOUNT'
  gives 'a destination outside' 'refused: line 2: destination of stage_in must begin' '#EFS stage_in type=file source=/pfs/a destination=/tmp/a'
  gives 'patterns of the nodes' 'path: "in[.]%N"' '#EFS stage_in type=file source=in.%N'
  gives 'a variable in a path' 'refused: line 2: .*variables are not known here' '#EFS stage_in type=file source=in/${X}'
  gives 'in that of a result' 'refused: line 2: .*variables are not known here' '#EFS stage_out type=file source=$EFS_MOUNT/r destination=$HOME/r'
  gives 'a home directory' 'refused: line 2: .*variables are not known here' '#EFS stage_in type=file source=~/in'
  gives 'a dollar sign' 'path: "a[$][$]b"' '#EFS stage_in type=file source=a$$b'
  gives 'a variable of another name' 'refused: line 2: destination of stage_in must begin' '#EFS stage_in type=file source=/pfs/a destination=$EFS_MOUNTED/a'
  gives 'two roots' 'refused: line 3: all inputs hang below one directory' '#EFS stage_in type=file source=a' '#EFS stage_in type=file source=/x/b destination=$EFS_MOUNT/b'
  gives 'elsewhere without a destination' 'refused: line 2: /x/b is not below /pfs/u' '#EFS stage_in type=file source=/x/b'
  gives 'out of the directory' 'refused: line 2: /pfs/b is not below /pfs/u' '#EFS stage_in type=file source=../b'
  gives 'all of the directory' 'refused: line 2: name something below' '#EFS stage_in type=directory source=.'
  gives 'results without a place' 'refused: line 2: stage_out needs' '#EFS stage_out type=file source=$EFS_MOUNT/r'
  gives 'results from elsewhere' 'refused: line 2: source of stage_out must be' '#EFS stage_out type=file source=/r destination=/pfs/r'
  is 'results with other names' 'global-settings:
  mount-dir: /efs
  root-dir: "/pfs/u"
  results-dir: "/pfs/out"
resources:
outputs:
  - path: "r/x.h5"
    as: "final.h5"
    inputs: true
  - path: "y"
    inputs: true' '#EFS stage_out type=file source=$EFS_MOUNT/r/x.h5 destination=/pfs/out/final.h5' '#EFS stage_out type=directory source=$EFS_MOUNT/y destination=/pfs/out/y'
  gives 'results of a pattern with another name' 'refused: line 2: what a pattern means keeps its name' '#EFS stage_out type=file source=$EFS_MOUNT/*.h5 destination=/pfs/out/a.h5'
  gives 'a result above all' 'refused: line 2: /final has no directory above it' '#EFS stage_out type=file source=$EFS_MOUNT/r destination=/final'
  gives 'two results directories' 'refused: line 3: all results go below one' '#EFS stage_out type=file source=$EFS_MOUNT/r destination=/x/r' '#EFS stage_out type=file source=$EFS_MOUNT/s destination=/y/s'
  gives 'a capacity that is none' 'refused: line 2: cannot read the capacity' '#EFS jobdw capacity=lots'
  gives 'shared by all nodes' 'refused: line 2: access_mode=striped' '#EFS jobdw capacity=1GB access_mode=striped'
  gives 'a capacity alone' 'refused: a capacity alone' '#EFS jobdw capacity=1GB'
  gives 'behind the first command' 'refused: line 3: a directive behind the first command' 'cd /' '#EFS stage_in type=file source=a'
  gives 'what is not for users' 'refused: line 2: #EFS. is not for users' '#EFS| resources:'
  check 'a directory whose name would be a line of the script' grep -q 'line 2: the directory of the submission has control characters' <(made_in $'/pfs/a\nrm -rf x')
  check 'a usual directory is none' grep -qx '  root-dir: "/pfs/a"' <(made_in /pfs/a)
  check 'a percent sign in its name is no pattern, a dollar sign no variable' grep -qxF '  root-dir: "/pfs/50%%j/$$x"' <(made_in '/pfs/50%j/$x')
  # licence LICENCES [FIELD]: prints the licences of a job with options (without options if FIELD is
  # "plain"), or the reason of its rejection.
  licence() {
    printf '%s\n' 'slurm = {SUCCESS = 0, ERROR = -1, log_user = function() end}' 'dofile(arg[1])' 'efs_directives.licence = "efs_stagein"' \
      'local job = {licenses = arg[2] ~= "" and arg[2] or nil, spank_job_env = arg[3] ~= "plain" and {"EFS_JOB=x"} or {"OTHER=EFS_JOB"}}' 'print(efs_directives.submit(job) or job.licenses)' >"$S/licence.lua"
    "$lua" "$S/licence.lua" "$JOB_SUBMIT" "$1" "${2:-}" 2>&1
  }
  check 'a licence for a job with efs' test "$(licence '')" = efs_stagein:1
  check 'beside others' test "$(licence a:2,b)" = a:2,b,efs_stagein:1
  check 'one, whatever it asks for' test "$(licence efs_stagein:4,a,efs_stagein@s:2,efs_stagein_x)" = a,efs_stagein_x,efs_stagein:1
  check 'none for another job' test "$(licence a plain)" = a
  check 'not with alternatives' grep -q 'licences of which one is enough' <(licence 'a|b')
  changed() {  # changed UID OLD NEW: what a change of a job's licences comes to
    printf '%s\n' 'slurm = {SUCCESS = 0, ERROR = -1, log_user = function() end}' 'dofile(arg[1])' 'efs_directives.licence = "efs_stagein"' \
      'local job = {licenses = arg[4]}' 'print(efs_directives.modify(job, {licenses = arg[3]}, tonumber(arg[2])) or job.licenses)' >"$S/modify.lua"
    "$lua" "$S/modify.lua" "$JOB_SUBMIT" "$@" 2>&1
  }
  check 'a user cannot give it away' test "$(changed 1 a,efs_stagein:1 b)" = b,efs_stagein:1
  check 'root can' test "$(changed 0 a,efs_stagein:1 b)" = b
  check 'what has none gets none' test "$(changed 1 a,efs_stagein_x b)" = b
  # The result is a job file.
  said '#EFS jobdw capacity=64MiB' '#EFS stage_in type=file source="in/ä b"' '#EFS stage_out type=directory source=$EFS_MOUNT/r destination=/pfs/out/r' >"$S/made.yaml"
  check_exit 'efs check finds it good' 0 'made.yaml: good' "$EFS" check "$S/made.yaml"
  said '#EFS stage_in type=directory source=/pfs/set/in destination=$EFS_MOUNT/in' '#EFS stage_out type=directory source=$EFS_MOUNT/in destination=/pfs/set/in' >"$S/made.yaml"
  check_exit 'also with results beside their inputs' 0 'made.yaml: good' "$EFS" check "$S/made.yaml"
  said '#EFS stage_in type=directory source=/pfs/set destination=$EFS_MOUNT' '#EFS stage_out type=file source=$EFS_MOUNT/r destination=/pfs/set/r' >"$S/made.yaml"
  check_exit 'and with inputs that are all of the mount' 0 'made.yaml: good' "$EFS" check "$S/made.yaml"
}

if ! ls /usr/lib/*/slurm*/job_submit_lua.so >/dev/null 2>&1; then
  . "$(dirname "$0")/../cli/lib.sh" "$@"
  lua_tests
  echo "############ DIRECTIVES ARE NOT TESTED IN SLURM HERE: no job_submit_lua.so ############"
  skip 'directives in slurmctld' 'no job_submit_lua.so'
  finish
fi
CLUSTER_CONF=$'JobSubmitPlugins=lua\nLicenses=efs_stagein:1,matlab:4' CLUSTER_FILES=$JOB_SUBMIT
. "$(dirname "$0")/scene.sh" "$@"
lua_tests
refused() { [ -z "$job" ] && grep -qE -- "$1" "$W/said"; }
install -d "$C/bin"
printf '#!/bin/sh\n%s "$@"; code=$?; [ "$1" != write ] || stat -c %%a "$4" >>%s/modes; exit $code\n' "$(command -v scontrol)" "$C" >"$C/bin/scontrol" && chmod 755 "$C/bin/scontrol"
cluster_plugstack directives=yes queue="$C/queue" scontrol="$C/bin/scontrol"

work directives
job=$(submit $USER1 -N2 -w n1,n2 <<SCRIPT
#!/bin/bash
#SBATCH -t 10
#EFS jobdw capacity=32MiB
#EFS stage_in type=directory source=in destination=\$EFS_MOUNT/in
#EFS stage_out type=directory source=\$EFS_MOUNT/out destination=$W/results/out
cat \$EFS_MOUNT/in/a
df -B1M --output=size \$EFS_MOUNT
srun bash -c 'mkdir -p \$EFS_MOUNT/out; echo r >\$EFS_MOUNT/out/r.\$SLURM_NODEID; echo t >\$EFS_MOUNT/temporary'
SCRIPT
)
ends "$job" COMPLETED 'a job with directives'
check 'has its input' says "$job" '^alpha$'
check 'nobody else can read its script on the nodes' test "$(sort -u "$C/modes")" = 600
check 'has its capacity' says "$job" ' 3[0-2]$'
check 'nothing is left' quiet "$job"
check 'results of both nodes are back' test "$(cat "$W/results/out/r.0" "$W/results/out/r.1")" = $'r\nr'
check 'and nothing else' test ! -e "$W/results/temporary"
job=$(submit $USER1 <<<$'#!/bin/bash\n#EFS stage_in type=file source=in/a\n#EFS stage_inn type=file source=in/a\ntrue')
check 'a directive that cannot be read is refused, with its line' refused 'efs: line 3: unknown verb "stage_inn"'
job=$(submit $USER1 --efs=job.yaml <<<$'#!/bin/bash\n#EFS stage_in type=file source=in/a\ntrue')
check 'so are directives beside options' refused 'take one of them'
job=$(submit $USER1 <<<$'#!/bin/bash\n#EFS stage_in type=file source=nowhere\necho ran')
ends "$job" FAILED 'a missing input'
check 'is told in the output' says "$job" 'efs: stage-in failed on n[1-4]: .*nowhere'
mkdir "$S/set"; cp -r "$W/in" "$S/set/"; chown -R $USER1 "$S/set"
job=$(submit $USER1 <<SCRIPT
#!/bin/bash
#EFS stage_in type=directory source=$S/set destination=\$EFS_MOUNT
#EFS stage_out type=directory source=\$EFS_MOUNT/in/sub destination=$S/set/in/sub
#EFS stage_out type=file source=\$EFS_MOUNT/new destination=$S/set/new
#EFS stage_out type=file source=\$EFS_MOUNT/deep/r.h5 destination=$S/set/final.h5
mkdir \$EFS_MOUNT/deep; echo final >\$EFS_MOUNT/deep/r.h5; cat \$EFS_MOUNT/in/a; echo after >\$EFS_MOUNT/in/sub/b; echo after >\$EFS_MOUNT/in/a; echo new >\$EFS_MOUNT/new
SCRIPT
)
ends "$job" COMPLETED 'a job whose results go beside its inputs'
check 'has its input' says "$job" '^alpha$'
check 'nothing is left' quiet "$job"
check 'a result that has another name there, too' test "$(cat "$S/set/final.h5")" = final -a ! -e "$S/set/deep"
check 'what it names comes back, an input too, and no other' test "$(cat "$S/set/in/sub/b" "$S/set/new" "$S/set/in/a")" = $'after\nnew\nalpha'
printf 'in/a\nin/sub\n' >"$W/names"
job=$(submit $USER1 <<<$'#!/bin/bash\n#EFS stage_in type=list source=names\ncat $EFS_MOUNT/in/a $EFS_MOUNT/in/sub/b; ls $EFS_MOUNT')
ends "$job" COMPLETED 'a job whose inputs are in a list'
check 'has them, and no more' test "$(output_of "$job" | tr '\n' ' ')" = 'alpha beta in '
job=$(submit $USER1 <<<$'#!/bin/bash\n# EFS and #EFS in a comment\necho "mount:$EFS_MOUNT:"')
ends "$job" COMPLETED 'a job without directives'
check 'is left alone' says "$job" '^mount::$'
job=$(submit $USER1 <<SCRIPT
#!/bin/bash
#EFS stage_in type=file source=in/a
sbatch -W -o $W/inner <<<\$'#!/bin/bash\necho ran'
SCRIPT
)
ends "$job" COMPLETED 'a job with directives that submits one without'
check 'which runs' grep -qx ran "$W/inner"
hold_slot
job=$(submit $USER1 <<<$'#!/bin/bash\n#EFS stage_in type=file source=in/a\ncat $EFS_MOUNT/in/a')
check 'a job with directives waits for its turn' await 30 waiters_are 1
is_marked() { comment_of "$job" | grep -q '^efs: directives; efs on n[1-4]: waits to stage in'; }
check 'what it waits for does not wipe out its mark' await 20 is_marked
release_slot
ends "$job" COMPLETED 'it goes on'
check 'and has its input' says "$job" '^alpha$'
job=$(submit $USER1 --efs=job.yaml <<<$'#!/bin/bash\ncat $EFS_MOUNT/in/a')
ends "$job" COMPLETED 'a job with options'
check 'is as ever' says "$job" '^alpha$'
job=$(submit $USER1 -J 'x AdminComment=efs: directives' <<<$'#!/bin/bash\necho "mount:$EFS_MOUNT:"')
ends "$job" COMPLETED 'a job that pretends to have directives'
check 'is left alone' says "$job" '^mount::$'

# --- the licence of a stage-in ---
sed -i 's/^-- efs.licence = "efs_stagein"$/efs.licence = "efs_stagein"/' "$C/job_submit.lua"   # as the file says
cluster_plugstack directives=yes queue="$C/queue" licence=efs_stagein
work licence
licences_of() { squeue -h --states=all -j "$1" -O Licenses:64 | tr -d ' '; }
licences_are() { [ "$(licences_of "$1")" = "$2" ]; }
waits_for_one() { [ "$(squeue -h -j "$1" -o '%T %r')" = 'PENDING Licenses' ]; }
hold_slot
first=$(submit $USER1 --efs=job.yaml -w n1,n2 -L matlab:2,efs_stagein:3 <<<$'#!/bin/bash\ncat $EFS_MOUNT/in/a; until [ -e '"$W/go"$' ]; do sleep 0.2; done')
check 'a job with efs has a licence, and what it asked for besides' licences_are "$first" matlab:2,efs_stagein:1
check 'it stages in' await 40 waiters_are 2
second=$(submit $USER1 -w n3 <<<$'#!/bin/bash\n#EFS stage_in type=file source=in/a\ncat $EFS_MOUNT/in/a')
check 'another one, with directives, waits for it, and holds no node' await 20 waits_for_one "$second"
check 'its user cannot do without' as $USER1 scontrol update JobId="$second" Licenses=matlab:1
check 'it has that besides' licences_are "$second" matlab:1,efs_stagein:1
plain=$(submit $USER1 -w n4 -L matlab:1 <<<$'#!/bin/bash\necho ran')
ends "$plain" COMPLETED 'a job without efs'
check 'has the licences that it asked for' licences_are "$plain" matlab:1
job=$(submit $USER1 --efs=job.yaml -L 'matlab|efs_stagein' <<<$'#!/bin/bash\ntrue')
check 'licences of which one is enough are refused' refused '-L matlab.efs_stagein: licences of which one is enough do not go with efs'
check 'the other one waits still' waits_for_one "$second"
release_slot
ends "$second" COMPLETED 'when the inputs of the first are there the second'
check 'has its input' says "$second" '^alpha$'
check 'the first runs on' is_running "$first"
check 'with the licences that it asked for' licences_are "$first" matlab:2
touch "$W/go"
ends "$first" COMPLETED 'the first'
check 'all licences are free' test "$(scontrol -o show license efs_stagein | grep -oE 'Used=[0-9]+')" = Used=0
held=$(cd "$W" && as $USER1 salloc -Q --efs=job.yaml sh -c 'echo "<$(squeue -h -j $SLURM_JOB_ID -O Licenses:64 | tr -d " ")>"')
check 'an allocation on one node holds none when it begins' grep -qxE '<(\(null\))?>' <(echo "$held")

# --- efs doctor on a node of a real cluster ---
check 'efs doctor finds the plugin and the settings of this cluster good' json "$("$EFS" doctor --json 2>/dev/null)" 'all({c["what"]: c["level"] for c in d["checks"]}[k] == "ok" for k in ("plugin", "PrologFlags", "PrologEpilogTimeout", "UnkillableStepTimeout", "plugin, shared=", "plugin, queue="))'
check 'and warns of a BatchStartTimeout that is shorter than the longest wait' json "$("$EFS" doctor --json 2>/dev/null)" '{c["what"]: c["level"] for c in d["checks"]}["BatchStartTimeout"] == "warning"'
cluster_finish
