-- Directives for efs in batch scripts, like those of DataWarp; an alternative to the options of sbatch, if the site enables them.
-- Optionally also a licence for each job with efs: slurmctld then limits the number of jobs that stage in (efs.licence, below).
--   slurm.conf:      JobSubmitPlugins=lua   (this file beside slurm.conf; or your own job_submit.lua that loads it with
--                    dofile and calls efs_directives.submit(job_desc), which returns nil, or the reason of a refusal; likewise
--                    efs_directives.modify(job_desc, job_rec, uid) in slurm_job_modify)
--   plugstack.conf:  directives=yes         (in the line of spank_efs.so)
--
--   #EFS jobdw capacity=SIZE [type=scratch] [access_mode=private]
--   #EFS stage_in  type=file|directory source=PATH [destination=$EFS_MOUNT/PATH]
--   #EFS stage_in  type=list source=FILE
--   #EFS stage_out type=file|directory source=$EFS_MOUNT/PATH destination=PATH
--
-- Directives stand before the first command of the script, as #SBATCH lines do. Relative paths of the PFS are relative to
-- the directory of the submission; the nodes replace patterns such as %N (efs-job(5)). All inputs lie below one directory, and so do all
-- results: the name below this directory is the name in the mount, unless the destination of an input has another name. A list
-- is a text file of the user with one input in each line, relative to that directory or below it; efs reads it when the job
-- starts. slurmctld rejects invalid lines and prints them. It inspects no file: a missing input fails the job when it starts.
--
-- The resulting job file is appended to the script, as comments; the plugin's prolog reads it there.

local efs = {word = "#EFS", admin_comment = "efs: directives"}

-- Instead of turns at the PFS (queue= in plugstack.conf), or in addition: slurmctld starts at most as many jobs with efs as
-- licences of this name exist; the others stay pending, and hold no nodes. A job returns its licence when its inputs are there.
--   slurm.conf:      Licenses=efs_stagein:4          (and more, with commas between them)
--   plugstack.conf:  licence=efs_stagein             (in the line of spank_efs.so; without it jobs hold theirs to their end)
-- One licence for each job, whatever its number of nodes. A requeued run has returned its licence, and runs without one.
-- efs.licence = "efs_stagein"

local known = {
  jobdw = {capacity = true, type = true, access_mode = true},
  stage_in = {type = true, source = true, destination = true},
  stage_out = {type = true, source = true, destination = true},
}

-- Returns { verb, key = value ... }, or nil and the reason.
local function parse_words(text)
  local words, verb, rest = {}, text:match("^%s+([%w_]+)%s*(.*)$")
  if not verb then return nil, "a verb must follow: jobdw, stage_in or stage_out" end
  if not known[verb] then return nil, "unknown verb \"" .. verb .. "\"; known are jobdw, stage_in and stage_out" end
  words.verb = verb
  while rest ~= "" do
    local key, value, more = rest:match("^([%w_]+)=\"([^\"]*)\"%s*(.*)$")
    if not key then key, value, more = rest:match("^([%w_]+)='([^']*)'%s*(.*)$") end
    if not key then key, value, more = rest:match("^([%w_]+)=([^%s\"']+)%s*(.*)$") end
    if not key then return nil, "cannot read \"" .. rest .. "\"; write KEY=VALUE" end
    if not known[verb][key] then return nil, "unknown key \"" .. key .. "\" of " .. verb end
    if words[key] then return nil, key .. " is there twice" end
    if value == "" or value:find("%c") then return nil, key .. " has no value, or control characters in it" end
    words[key], rest = value, more
  end
  return words
end

-- "/a/b/../c/" -> "/a/c"
local function normal(path)
  local parts = {}
  for part in path:gmatch("[^/]+") do
    if part == ".." then table.remove(parts) elseif part ~= "." then parts[#parts + 1] = part end
  end
  return "/" .. table.concat(parts, "/")
end

local function absolute(path, work_dir) return normal(path:sub(1, 1) == "/" and path or work_dir .. "/" .. path) end

-- Escapes the text, since efs expands paths on the nodes.
local function literal(text) return (text:gsub("[%%$]", "%0%0")) end

local function has_variable(path) return path:gsub("%$%$", ""):find("%$") ~= nil or path:sub(1, 1) == "~" end

-- The rest after the mount point's variable; nil if the text does not begin with the variable.
local function in_mount(path)
  for _, name in ipairs({"EFS_MOUNT", "DW_JOB_PRIVATE"}) do
    local rest = path:match("^%$" .. name .. "(.*)$") or path:match("^%${" .. name .. "}(.*)$")
    if rest and (rest == "" or rest:sub(1, 1) == "/") then return (normal(rest):sub(2)) end
  end
  return nil
end

-- The directory of `path` without `name` at its end; nil if the path does not end in the name.
local function above(path, name)
  if name == "" then return path end
  if path:sub(-#name - 1) ~= "/" .. name then return nil end
  local top = path:sub(1, -#name - 2)
  return top == "" and "/" or top
end

local function check_kind(words)
  if words.type == nil then return words.verb .. " needs type=file or type=directory" end
  if words.type == "file" or words.type == "directory" then return nil end
  if words.type == "list" then return "type=list is for stage_in; name directories, files or patterns" end
  return "unknown type \"" .. words.type .. "\"; known are file and directory"
end

local function take_root(job, root)
  if job.root and job.root ~= root then return "all inputs hang below one directory: " .. job.root .. " before, and here " .. root end
  job.root = root
end

-- Below the directory of the previous inputs, or else that of the submission.
local function add_list(job, words, work_dir)
  if words.destination then return "a list has no destination: its inputs keep their names below " .. (job.root or normal(work_dir)) end
  job.lists[#job.lists + 1] = absolute(words.source, work_dir)
  return take_root(job, job.root or normal(work_dir))
end

local function is_below(path, top) return path:sub(1, #top + 1) == top .. "/" end

-- An input that appears under another name. Below the directory of the previous inputs, that of the submission, or else its own.
local function add_renamed(job, source, name, work_dir)
  local root = job.root or normal(work_dir)
  if name == "" then return "name something below the mount point" end
  if not is_below(source, root) then
    if job.root then return "all inputs hang below one directory: " .. job.root .. ", and " .. source .. " does not" end
    root = source:match("^(.+)/[^/]*$")
    if not root then return source .. " has no directory above it but /" end
  end
  job.ins[#job.ins + 1] = {path = source:sub(#root + 2), as = name}
  job.root, job.renamed = root, true
end

local function add_stage_in(job, words, work_dir)
  local why = words.type ~= "list" and check_kind(words)
  if why then return why end
  if not words.source then return "stage_in needs source=PATH" end
  if has_variable(words.source) then return "source of stage_in is a path of the PFS; variables are not known here" end
  if words.type == "list" then return add_list(job, words, work_dir) end
  local source, root, name = absolute(words.source, work_dir)
  if words.destination then
    name = in_mount(words.destination)
    if not name then return "destination of stage_in must begin with $EFS_MOUNT/" end
    root = above(source, name)
    if not root then return add_renamed(job, source, name, work_dir) end
  else
    root = normal(work_dir)
    if source ~= root and source:sub(1, #root + 1) ~= root .. "/" then return source .. " is not below " .. root .. "; say where it goes: destination=$EFS_MOUNT/PATH" end
    name = source:sub(#root + 2)
  end
  if name == "" and (words.type ~= "directory" or not words.destination) then return "name something below " .. root .. ", not all of it" end
  why = take_root(job, root)
  if why then return why end
  job.ins[#job.ins + 1] = {path = name == "" and "." or name}
end

local function add_stage_out(job, words, work_dir)
  local why = check_kind(words)
  if why then return why end
  if not words.source or not words.destination then return "stage_out needs source=$EFS_MOUNT/PATH and destination=PATH" end
  local name = in_mount(words.source)
  if not name or name == "" then return "source of stage_out must be a path below $EFS_MOUNT" end
  if has_variable(words.destination) then return "destination of stage_out is a path of the PFS; variables are not known here" end
  local destination = absolute(words.destination, work_dir)
  local results, as = above(destination, name)
  if not results and name:find("[*?[]") then return "what a pattern means keeps its name: " .. destination .. " does not end in " .. name end
  if not results then results, as = destination:match("^(.+)/([^/]+)$") end
  if not results then return destination .. " has no directory above it but /" end
  if job.results and job.results ~= results then return "all results go below one directory: " .. job.results .. " before, and here " .. results end
  job.results, job.outs[#job.outs + 1] = results, {path = name, as = as}
end

local function add_jobdw(job, words)
  if not words.capacity then return "jobdw needs capacity=SIZE" end
  if not words.capacity:match("^%d+%.?%d*[KMGTPE]?i?B?$") then return "cannot read the capacity \"" .. words.capacity .. "\"; write 100GiB, 1.5TB or a number of bytes" end
  if words.type and words.type ~= "scratch" then return "the only type of jobdw is scratch" end
  if words.access_mode and words.access_mode ~= "private" then return "access_mode=" .. words.access_mode .. ": each node has its own file system, which is private" end
  if job.capacity then return "the capacity is there twice" end
  job.capacity = words.capacity
end

local adders = {jobdw = add_jobdw, stage_in = add_stage_in, stage_out = add_stage_out}

-- Strings of JSON are also strings of YAML.
local function quote(text) return '"' .. text:gsub('[\\"]', "\\%0") .. '"' end

-- nil if nothing is exported.
local function place_of_results(job, root)
  if job.results and job.results ~= root then return "  results-dir: " .. quote(job.results) end
  return not job.renamed and "  in-place: true" or nil
end

local function job_file(job, work_dir)
  local root = job.root or normal(work_dir)
  local lines = {"global-settings:", "  mount-dir: /efs", "  root-dir: " .. quote(root), place_of_results(job, root)}
  lines[#lines + 1] = "resources:"
  for _, input in ipairs(job.ins) do
    lines[#lines + 1] = "  - path: " .. quote(input.path)
    if input.as then lines[#lines + 1] = "    as: " .. quote(input.as) end
  end
  for _, file in ipairs(job.lists) do lines[#lines + 1] = "  - list: " .. quote(file) end
  lines[#lines + 1] = "outputs:"
  for _, result in ipairs(job.outs) do
    lines[#lines + 1] = "  - path: " .. quote(result.path)
    if result.as then lines[#lines + 1] = "    as: " .. quote(result.as) end
    lines[#lines + 1] = "    inputs: true"
  end
  if #job.outs == 0 then
    lines[#lines + 1] = '  - path: "**"'
    lines[#lines + 1] = "    flags: temporary"
  end
  if job.capacity then
    lines[#lines + 1] = "backends:"
    lines[#lines + 1] = "  - id: memory"
    lines[#lines + 1] = "    capacity: " .. quote(job.capacity)
  end
  return lines
end

-- The job file for a script's directives; nil if there are none; nil and the reason if one is wrong.
function efs.read(script, work_dir)
  if work_dir:find("%c") then work_dir = nil else work_dir = literal(work_dir) end
  local job, found, commands, number = {ins = {}, lists = {}, outs = {}}, false, false, 0
  for line in (script .. "\n"):gmatch("(.-)\r?\n") do
    number = number + 1
    local at = "line " .. number .. ": "
    local is_directive = line:sub(1, #efs.word) == efs.word and not line:sub(#efs.word + 1):match("^%w")
    if is_directive and line:sub(#efs.word + 1, #efs.word + 1) == "|" then return nil, at .. efs.word .. "| is not for users" end
    if is_directive and commands then return nil, at .. "a directive behind the first command" end
    if is_directive then
      if work_dir == nil then return nil, at .. "the directory of the submission has control characters in its name" end
      local words, why = parse_words(line:sub(#efs.word + 1))
      if words then why = adders[words.verb](job, words, work_dir) end
      if why then return nil, at .. why end
      found = true
    elseif not line:match("^%s*#") and not line:match("^%s*$") then
      commands = true
    end
  end
  if not found then return nil end
  if #job.ins == 0 and #job.lists == 0 and #job.outs == 0 then return nil, "a capacity alone is not enough: stage_in or stage_out must say what for" end
  if job.renamed and job.results == job.root then return nil, "results cannot go to " .. job.root .. ", where inputs are that have other names on the mount; choose another directory" end
  return job_file(job, work_dir)
end

-- Whether the job uses efs by options of sbatch, salloc or srun.
local function has_options(job_desc)
  for _, word in pairs(job_desc.spank_job_env or {}) do
    if tostring(word):match("EFS_JOB=") then return true end
  end
  return false
end

-- A list of licences with one of efs.licence, which users cannot request; nil and the reason if it is impossible.
local function with_licence(licences)
  local words = {}
  if (licences or ""):find("|", 1, true) then return nil, "-L " .. licences .. ": licences of which one is enough do not go with efs at this site" end
  for word in (licences or ""):gmatch("[^,]+") do
    if word:match("^[^:=@]*") ~= efs.licence then words[#words + 1] = word end
  end
  words[#words + 1] = efs.licence .. ":1"
  return table.concat(words, ",")
end

-- Returns nil, or the reason of a refusal.
local function take_licence(job_desc)
  local licences, why = with_licence(job_desc.licenses)
  if licences then job_desc.licenses = licences end
  return why
end

-- Returns nil, or the reason of a refusal.
local function take_directives(job_desc)
  if job_desc.script == nil then return nil end
  local lines, why = efs.read(job_desc.script, job_desc.work_dir or "/")
  if why then return why end
  if lines == nil then return nil end
  if has_options(job_desc) then return "the script has directives, and there are options --efs...; take one of them" end
  job_desc.script = job_desc.script .. "\n" .. efs.word .. "| " .. table.concat(lines, "\n" .. efs.word .. "| ") .. "\n"
  job_desc.admin_comment = efs.admin_comment
  job_desc.environment["EFS_DIRECTIVES"] = "yes"
  return nil
end

-- Returns nil, or the reason of a refusal.
function efs.submit(job_desc)
  local why = take_directives(job_desc)
  if why then return why end
  if efs.licence and (job_desc.admin_comment == efs.admin_comment or has_options(job_desc)) then return take_licence(job_desc) end
  return nil
end

-- A waiting job keeps its licence if its user changes the other licences. Returns nil, or the reason of a refusal.
function efs.modify(job_desc, job_rec, uid)
  if not efs.licence or uid == 0 or not job_desc.licenses then return nil end
  for word in (job_rec.licenses or ""):gmatch("[^,]+") do
    if word:match("^[^:=@]*") == efs.licence then return take_licence(job_desc) end
  end
  return nil
end

efs_directives = efs

function slurm_job_submit(job_desc, part_list, submit_uid)
  local why = efs.submit(job_desc)
  if why == nil then return slurm.SUCCESS end
  slurm.log_user("efs: %s", why)
  return slurm.ERROR
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
  local why = efs.modify(job_desc, job_rec, modify_uid)
  if why == nil then return slurm.SUCCESS end
  slurm.log_user("efs: %s", why)
  return slurm.ERROR
end

return slurm.SUCCESS
