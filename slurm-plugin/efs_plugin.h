/* SPDX-License-Identifier: BSD-3-Clause */
/* Declarations shared by the files of the plugin. Plain C: no code here may end or unwind the
 * Slurm process that loads the plugin.
 *
 * The files, the processes that run them, and their users:
 *   allocator.c  sbatch, salloc, srun       the user    checks the job file, passes its text on
 *   prolog.c     slurmd's prolog process    root        starts efs, waits for the inputs
 *   task.c       slurmstepd                 root, user  sets the tasks' environment, or fails them
 *   in_job.c     the batch script's task    the user    stages out after the script
 *   epilog.c     slurmd's epilog process    root        stops efs
 *   slurmd.c     slurmd                     root        cleans up after a crash
 *   watch.c      a process from the prolog  root        reports on a running job's file system
 * Root trusts no data from the user: neither the options nor the allocator's entries in the job
 * control environment. Root creates files only below directories that belong to root. Root
 * passes the user's paths on to efs, whose worker accesses them as the user. */
#ifndef EFS_PLUGIN_H
#define EFS_PLUGIN_H

#include <slurm/spank.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define EFS_PATH 512             /* bytes of a path or a word, with its terminator */
#define EFS_TEXT 2048            /* bytes of a message */
#define EFS_FIGURES 256          /* bytes for efs_read_figures() */
#define EFS_USUAL_RUN "/run/efs" /* the default directory of root's instances */
#define EFS_DIRECTIVES \
  "efs: directives"           /* the AdminComment by which slurmctld marks a job with directives */
#define EFS_LARGEST_JOB 98304 /* bytes of a job file: it must fit one environment variable */

/* The site's settings: the arguments in plugstack.conf, KEY=VALUE; %n is the node's name. */
struct efs_site {
  char efs[EFS_PATH];   /* efs=      the program (default efs) */
  char state[EFS_PATH]; /* state=    root's directory on every node (default /run/efs-slurm) */
  char run[EFS_PATH]; /* run=      root's directory for the instances (default /run/efs, the default
                         of efs for root) */
  char mount[EFS_PATH];  /* mount=    root's directory for job mounts (default /run/efs-jobs) */
  char shared[EFS_PATH]; /* shared=   directory on the PFS for the nodes' records (default none) */
  char queue[EFS_PATH];  /* queue=    directory of the queue on the PFS (default none) */
  char view[EFS_PATH];   /* view=     where every job sees its own mount (default none: no private
                            namespace) */
  char scontrol[EFS_PATH]; /* scontrol= the program (default scontrol); other programs of Slurm are
                              beside it */
  char mail[EFS_PATH];     /* mail=     program to run if results are missing (default none) */
  char licence[EFS_PATH];  /* licence=  licence that jobs hold while they stage in (default none) */
  char node[EFS_PATH];
  int poll;       /* poll=     seconds between queries for the job's state (default 5) */
  int plan;       /* plan=yes|no  check the inputs at submission (default yes) */
  int directives; /* directives=yes|no  use the #EFS lines that job_submit.lua has read (default no)
                   */
  int stage_out;  /* stage-out=SECONDS  limit for the stage-out of an epilog (default 0: none) */
  int output;     /* output=yes|no  report the stage-out in the last line of a batch job's output
                     (default yes) */
  int watch; /* watch=SECONDS|no  interval of checks of a running job's file system (default 60; 0:
                none) */
  int keep;  /* keep=HOURS|no  limit for kept instances (default 24; 0: none are kept) */
};

/* A job on this node. */
struct efs_job {
  uint32_t id;
  uint32_t restart;
  uid_t uid;
  gid_t gid;
  char name[EFS_PATH];      /* name of the instance */
  char directory[EFS_PATH]; /* the job's state on this node */
  char mount[EFS_PATH];
};

/* The options of a user. */
struct efs_options {
  char job[EFS_PATH];
  char capacity[EFS_PATH];
  char keep[EFS_PATH], attach[EFS_PATH];
  char *in[64], *out[64];
  int ins, outs;
  int no_stage_out, in_job, keeps, intercepts, bad;
};

/* options.c */
void efs_register_options(spank_t spank);
const struct efs_options* efs_given_options(void);
int efs_is_wanted(void); /* an option asks for efs */

/* site.c */
/* Reads the settings; logs and ignores invalid words. Returns 0 if all are valid. Returns
 * EFS_SITE_UNKNOWN if a key is unknown, as while nodes are upgraded one by one. Returns
 * EFS_SITE_BAD if a value is invalid: its setting has the default, or "" for a path. */
enum { EFS_SITE_UNKNOWN = 1, EFS_SITE_BAD = 2 };

int efs_read_site(struct efs_site* site, int count, char** words);
/* Finds squeue, srun or sinfo: beside scontrol=, or on the PATH. `path` has EFS_PATH bytes. */
void efs_slurm_program(const struct efs_site* site, const char* name, char* path);

/* job.c: the state of jobs on this node, below site->state. Root owns all of it. */
int efs_describe_job(spank_t spank, const struct efs_site* site, struct efs_job* job);
/* Sets the names from id and restart. */
void efs_name_job(const struct efs_site* site, struct efs_job* job);
int efs_make_job(const struct efs_site* site, const struct efs_job* job);
int efs_write_file(const char* directory, const char* name, const char* text, mode_t mode,
                   uid_t owner);
/* Returns 0, or -1 if there is no such file. */
int efs_read_file(const char* directory, const char* name, char* text, size_t size);
void efs_remove_job(const struct efs_site* site, const struct efs_job* job);
/* As efs_remove_job(), but keeps the mount point, which all runs of a job share. */
void efs_remove_run(const struct efs_job* job);
/* Finds the job with any restart count. Returns 1 if there is one. */
int efs_find_job(const struct efs_site* site, struct efs_job* job);
/* Returns 1 if the job's instance has a directory. */
int efs_is_there(const struct efs_site* site, const struct efs_job* job);
void efs_note_boot(const struct efs_job* job);
/* Returns 1 if the node was restarted since efs_note_boot(); 0 if not, or unknown. */
int efs_node_was_restarted(const struct efs_job* job);
/* Finds the number of this node in the job (0 is the first). Returns -1 if unknown. */
int efs_read_place(const struct efs_job* job, unsigned* node, unsigned* nodes);

/* keep.c: instances that a job keeps on the node for a later job of the same user. */
#define EFS_KEPT_NAME 32 /* bytes of the user's name for it, without the terminator */
/* Gives the job the kept instance that its flags name. Returns -1, with the reason in `why`, if
 * that is not possible. Does nothing without such a flag. */
int efs_choose_kept(const struct efs_site* site, struct efs_job* job, const char* flags,
                    const char* const* environment, char why[EFS_TEXT]);
/* Reads the state as efs status reports it: "running", "kept", "dead", ... */
void efs_state_of(const struct efs_site* site, const struct efs_job* job,
                  const char* const* environment, char* state, size_t size);
/* Returns 1 if the instance was stopped, is complete, and is available to the next job. */
int efs_is_kept_now(const struct efs_site* site, const struct efs_job* job,
                    const char* const* environment);
/* As efs_is_kept_now(), right after a stop that keeps the instance. Waits up to ten seconds,
 * because the daemon needs a moment to end. */
int efs_will_be_kept(const struct efs_site* site, const struct efs_job* job,
                     const char* const* environment);
/* Returns 1 if an earlier run of this job kept the instance with the job's name. */
int efs_has_kept(const struct efs_site* site, const struct efs_job* job);

/* Returns EFS_OWN if the instance is alive, or does not answer, and belongs to this job and to
 * no other. Waits up to a minute, if the hook has that long, for jobs that are choosing an
 * instance. Returns EFS_NOBODY_CAN_SAY if those jobs do not finish. */
enum efs_life { EFS_OWN, EFS_NOT_OWN, EFS_NOBODY_CAN_SAY };
enum efs_life efs_whose_life(const struct efs_site* site, const struct efs_job* job,
                             const char* const* environment);
void efs_note_kept(const struct efs_site* site, const struct efs_job* job);
/* Removes instances that were kept for too long. */
void efs_sweep_kept(const struct efs_site* site);

/* ask.c: queries to slurmctld about a job. 1: an answer. 0: there is no such job. -1: unknown,
 * because slurmctld did not answer within some 20 s, or within a minute of retries if the job
 * cannot run without the answer. EFS_TOO_LONG: the answer does not fit. */
enum { EFS_TOO_LONG = -2 };

struct efs_record {
  char state[32];
  char limit[64];      /* time limit of the job: "UNLIMITED", "10:00" */
  char host[EFS_PATH]; /* host that runs the script */
};

int efs_ask_job(const struct efs_site* site, uint32_t id, struct efs_record* record);

/* The resources of the job on all its nodes, in Slurm's units. */
struct efs_allocated {
  char least[32]; /* "300M": memory requested for each node or for each CPU */
  char sum[32];   /* memory of all nodes */
  unsigned long long cpus, nodes;
};

int efs_ask_allocated(const struct efs_site* site, uint32_t id, struct efs_allocated* allocated);
/* Returns how often slurmctld has requeued the job; -1: unknown. */
int efs_ask_restarts(const struct efs_site* site, uint32_t id);
/* Returns 1: yes; 0: no; -1: unknown. */
int efs_job_is_over(const struct efs_site* site, uint32_t id);
/* Returns whether the job's processes or epilogs still run on a node. */
int efs_job_is_completing(const struct efs_site* site, uint32_t id);

/* The state of a run of a job. ENDS: it is alive, or just about to end. OVER: slurmctld has
 * recorded its end on all its nodes. SUPERSEDED: the job has started again. */
enum efs_run_state { EFS_RUN_ENDS, EFS_RUN_OVER, EFS_RUN_SUPERSEDED, EFS_RUN_UNKNOWN };
enum efs_run_state efs_ask_run(const struct efs_site* site, uint32_t id, uint32_t restart);
/* Returns whether the job has a script, as jobs of sbatch do; jobs of salloc and srun have none.
 * -1: unknown. */
int efs_has_script(const struct efs_site* site, uint32_t id);
/* Finds the number and index of a job in an array; "" if it is in no array. */
#define EFS_NUMBER 16
int efs_ask_array(const struct efs_site* site, uint32_t id, char array[EFS_NUMBER],
                  char task[EFS_NUMBER]);

/* Data of a job at its end: its number and index in an array ("" if it is in no array), and the
 * requested output of its script ("" if it has no script). */
struct efs_end {
  char array[EFS_NUMBER], task[EFS_NUMBER];
  char name[256], directory[512], output[1000];
};

int efs_ask_end(const struct efs_site* site, uint32_t id, struct efs_end* end);
/* Reads the job's name, which the user has chosen. Returns 0 also if it is too long. */
int efs_ask_name(const struct efs_site* site, uint32_t id, char* name, size_t size);
int efs_admin_comment(const struct efs_site* site, uint32_t id, char* comment, size_t size);
/* Reads "name:1,other:2", all licences of the job; "" if it has none. -1: unknown, or too long. */
int efs_ask_licences(const struct efs_site* site, uint32_t id, char* licences, size_t size);
/* Finds the number of this node in the job. Returns 0, or an error as above. */
int efs_find_node(const struct efs_site* site, uint32_t id, unsigned* node, unsigned* nodes);

/* directives.c */
/* Returns -1 if unknown. */
int efs_has_directives(const struct efs_site* site, const struct efs_job* job);
/* Reads the job file that the directives make. Returns -1 if there are none, and 1 if slurmctld
 * does not provide them. */
int efs_read_directives(const struct efs_site* site, const struct efs_job* job, char* text,
                        size_t size);

/* memory.c: sizes as "64MiB"; "" if unknown. */
#define EFS_WHENCE 96

struct efs_memory {
  char job[64]; /* maximum for the job on a node; "" also if Slurm does not manage memory */
  char whence[EFS_WHENCE]; /* the option or setting with this limit */
  char node[64];           /* memory of the cluster's largest node */
};

void efs_memory_at_submission(const struct efs_site* site, struct efs_memory* memory);

/* Finds the job's memory on this node. Returns 0 for the requested memory. Returns
 * EFS_ALL_OF_NODE if the job requested nothing, or the whole node. Returns -1 if slurmctld
 * cannot tell. efs_memory_is_counted() returns 1 if Slurm manages memory, so that the job has it
 * for itself. */
enum { EFS_ALL_OF_NODE = 1 };

int efs_memory_of_job(const struct efs_site* site, uint32_t id, char* text, size_t size);
int efs_memory_is_counted(const struct efs_site* site);

/* patience.c: the time limit of a prolog or an epilog (PrologEpilogTimeout). After that time
 * slurmd kills the hook and drains the node. */
#define EFS_NO_END 2147483647
/* Call it in a prolog or an epilog; other hooks have no limit. */
void efs_begin_hook(void);
/* Returns the whole seconds left for the hook's work, less the time to report its result. 0: the
 * hook must end now. EFS_NO_END: no limit. */
int efs_seconds_left(void);
/* Returns PrologEpilogTimeout; 0: none. */
unsigned efs_hook_limit(void);

/* run.c */
struct efs_outcome {
  const char* wanted; /* set by the caller: if the text is too long, drops the lines that do not
                         begin with this; NULL: drops the last bytes */
  int cut;            /* the wanted text did not fit */
  int code;           /* exit code; 128 + signal; 127: not run; -1: stopped because of `tick` */
  char text[65536];
  const struct efs_job*
      as; /* set by the caller: root runs the program as this job's user; NULL: as root */
};

/* Calls a function that may hang, in a child process. `text` receives what the function writes
 * to its descriptor. Returns the function's result; -1 if it took longer than `seconds` or could
 * not run. */
int efs_in_child(int (*what)(void*, int), void* with, int seconds, char* text, size_t size);
/* In a child: closes all descriptors except this one, which becomes 3. */
void efs_keep_alone(int end);
/* Runs a program and collects its output. After `seconds` the program gets SIGTERM and, 10 s
 * later, SIGKILL; 0: no limit. A program that hangs in the kernel after SIGKILL is left behind.
 * `environment` may be NULL: then a small default one is used. */
void efs_run(const char* const* words, const char* const* environment, int seconds,
             struct efs_outcome* outcome);

/* A function to call while a program runs. */
struct efs_tick {
  int (*call)(void*);
  void* with;
};

/* As efs_run(), but calls `tick` every `seconds`. When it returns nonzero, the program gets the
 * signals. */
void efs_run_ticking(const char* const* words, const char* const* environment, int seconds,
                     const struct efs_tick* tick, struct efs_outcome* outcome);

/* text.c */
/* Returns -1 if the text is too long; `to` is then "". */
int efs_copy(char* to, size_t size, const char* from);
int efs_format(char* to, size_t size, const char* format, ...)
    __attribute__((format(printf, 3, 4)));
/* Reads a string member of the outermost object. */
int efs_json_text(const char* json, const char* key, char* value, size_t size);
/* Reads any member of the outermost object, as its JSON text. */
int efs_json_value(const char* json, const char* key, char* value, size_t size);
/* Reads an item of an array that is a member of the outermost object, as its JSON text. */
int efs_json_item(const char* json, const char* key, unsigned number, char* value, size_t size);
void efs_json_quote(const char* text, char* quoted, size_t size);
/* Returns whether the name has only letters, digits and . _ -, at most EFS_KEPT_NAME of them,
 * and begins with a letter or digit. */
int efs_is_kept_name(const char* name);
/* Returns 1 if `word` is one of the words. (A value may have the same text.) */
int efs_has_word(const char* flags, const char* word);
/* Reads the value of KEY=VALUE among the words; `key` ends in =. Returns 1 if it is there. */
int efs_flag(const char* flags, const char* key, char* value, size_t size);
/* Replaces newlines by "; " and other control characters by ?. */
void efs_one_line(char* text);

/* notice.c: reports to people and to other nodes. No function here can fail a job. */
/* Sets the job's AdminComment. Returns 0 on success; -1 if slurmctld did not answer in time; or
 * its error code, for example if the job has ended. */
int efs_comment(const struct efs_site* site, const struct efs_job* job, const char* text);
/* For a job that has ended: slurmctld rejects comments on it, so the comment goes to the site's
 * accounting (slurmdbd), if there is one. */
void efs_comment_in_accounting(const struct efs_site* site, const struct efs_job* job,
                               const char* text);
void efs_publish(const struct efs_site* site, const struct efs_job* job, const char* state,
                 const char* text);
/* `more`: members of JSON, each after a comma. */
void efs_publish_more(const struct efs_site* site, const struct efs_job* job, const char* state,
                      const char* text, const char* more);
/* Records which job a task of an array is, because slurmctld soon forgets this. */
void efs_publish_task(const struct efs_site* site, const struct efs_job* job, const char* array,
                      const char* task);
/* Returns 1 if a node failed; 2 if a node could not stage and the job is not at fault. */
int efs_find_failure(const struct efs_site* site, const struct efs_job* job, char* text,
                     size_t size);

/* output.c: writes the last line of the job's output, if the job has a script and the site wants
 * the line. `text` NULL: nothing to report. Never fails, and never hangs. */
void efs_tell_end(const struct efs_site* site, const struct efs_job* job, const char* text,
                  int is_trouble);

/* watch.c */
/* Watches the job in a new process from now on. `status`: the output of `efs start --json`. */
void efs_watch(const struct efs_site* site, const struct efs_job* job, const char* status);
/* Reads figures from `efs status --json`, for efs_publish_more(); "" if there are none. */
void efs_read_figures(const char* status, char* more, size_t size);

/* unsaved.c: reports the present state of earlier runs with missing results, except this job's. */
void efs_review_unsaved(const struct efs_site* site, uint32_t but);

/* entry points, one per context; each returns the result of its hook */
int efs_allocator_check(spank_t spank, const struct efs_site* site);

struct efs_text {
  char* bytes;
  size_t length, size;
  int full; /* the text did not fit */
};

/* job_file.c: returns 0; or -1 after it has reported the error. */
int efs_make_job_file(const struct efs_options* given, struct efs_text* text);
/* Call it before Slurm handles options, because Slurm puts them into the environment too. */
void efs_note_inherited(void);
/* For srun inside an allocation. */
int efs_check_step(void);
int efs_prolog(spank_t spank, const struct efs_site* site);
/* Extends the time limit by the minutes spent on staging that were not given back yet. Runs on
 * the node of the job's script only: in its prolog, and again when the script starts, because
 * other nodes may have taken longer. For an allocation without a script: on its first node, in
 * the prolog. */
void efs_give_back(const struct efs_site* site, const struct efs_job* job);
/* Returns the licence that the job held for its stage-in (job_submit.lua), if the site has one.
 * Runs on one node, when all nodes have staged in. */
void efs_give_back_licence(const struct efs_site* site, const struct efs_job* job);
int efs_epilog(spank_t spank, const struct efs_site* site);
/* holders.c */
/* Kills the user's processes that use the mount or a view of it, but not those of efs. */
void efs_kill_holders(const struct efs_job* job);
/* Signals the job's own efsd; with `number` 0, sends no signal. Returns the number of processes. */
int efs_signal_daemons(const struct efs_site* site, const struct efs_job* job, int number);
/* Returns whether this process sees the mount. */
int efs_is_mounted(const struct efs_job* job);

void efs_stop_job(const struct efs_site* site, const struct efs_job* job);
int efs_user_init(spank_t spank, const struct efs_site* site);
int efs_task_init_privileged(spank_t spank, const struct efs_site* site, int site_is_bad);
int efs_task_init(spank_t spank, const struct efs_site* site);
/* intercept.c: adds libefs-intercept to LD_PRELOAD of the tasks, behind the user's own libraries,
 * if
 * --efs-intercept is given. Without the library the tasks run as they are, and the error says so.
 */
void efs_preload(spank_t spank, const struct efs_site* site);
/* in_job.c: prepares root's part of the stage-out before the task becomes the user's. */
void efs_prepare_in_job(spank_t spank, const struct efs_site* site);
#define EFS_STAGING_OUT \
  "EFS_STAGING_OUT" /* environment of a step that stages out: the number of its job */
void efs_sweep(const struct efs_site* site);

#endif
