/* What the files of the plugin share. Plain C: nothing here may end or unwind the Slurm process it
 * runs in.
 *
 * Who calls what, where, as whom:
 *   allocator.c  sbatch, salloc, srun       the user    checks the job file, hands its text to the
 * nodes prolog.c     slurmd's prolog process    root        starts efs, waits for the inputs task.c
 * slurmstepd                 root, user  tells the tasks where the files are, or fails them
 *   in_job.c     the batch script's task    the user    stages out when the script has ended
 *   epilog.c     slurmd's epilog process    root        stops efs
 *   slurmd.c     slurmd                     root        sweeps what a crash left
 *   watch.c      a process from the prolog  root        says of a job that runs how its file system
 * fares Root believes nothing that comes from the user: the options, and what the allocator put
 * into the job control environment. It makes files only below directories that belong to root, and
 * hands paths of the user's on to efs, whose worker uses them as the user. */
#ifndef EFS_PLUGIN_H
#define EFS_PLUGIN_H

#include <slurm/spank.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define EFS_PATH 512             /* bytes of a path or a word, its end included */
#define EFS_TEXT 2048            /* of a message */
#define EFS_FIGURES 256          /* of efs_read_figures() */
#define EFS_USUAL_RUN "/run/efs" /* where efs looks for root's instances */
#define EFS_DIRECTIVES \
  "efs: directives"           /* the AdminComment by which slurmctld marks a job that has some */
#define EFS_LARGEST_JOB 98304 /* of a job file: it travels in one environment variable */

/* The site's settings: the arguments in plugstack.conf, KEY=VALUE; %n is the node's name. */
struct efs_site {
  char efs[EFS_PATH];    /* efs=      the program (default efs) */
  char state[EFS_PATH];  /* state=    directory of root's on every node (default /run/efs-slurm) */
  char run[EFS_PATH];    /* run=      directory of root's for the instances (default /run/efs, where
                            efs looks for root's) */
  char mount[EFS_PATH];  /* mount=    directory of root's below which jobs' mounts are (default
                            /run/efs-jobs) */
  char shared[EFS_PATH]; /* shared=   directory on the PFS where nodes tell one another (default
                            none) */
  char queue[EFS_PATH];  /* queue=    directory of the turns at the PFS (default none) */
  char view[EFS_PATH];   /* view=     where every job sees its own mount (default none: no private
                            namespace) */
  char scontrol[EFS_PATH]; /* scontrol= the program (default scontrol); others of Slurm are beside
                              it */
  char mail[EFS_PATH]; /* mail=     program that is called when results are not back (default none)
                        */
  char licence[EFS_PATH]; /* licence=  that jobs hold while they stage in (default none) */
  char node[EFS_PATH];
  int poll;       /* poll=     seconds between looks at the job's state (default 5) */
  int plan;       /* plan=yes|no  look for the inputs at submission (default yes) */
  int directives; /* directives=yes|no  look for #EFS lines, which job_submit.lua has read (default
                     no) */
  int stage_out; /* stage-out=SECONDS  the longest that the stage-out of an epilog may take (default
                    0: what it takes) */
  int output;    /* output=yes|no  the last line of a batch job's output says what its stage-out did
                    (default yes) */
  int watch; /* watch=SECONDS|no  between looks at the file system of a job that runs (default 60;
                0: none) */
  int keep;  /* keep=HOURS|no  how long what a job keeps stays at most (default 24; 0: nothing is
                kept) */
};

/* One job on this node. */
struct efs_job {
  uint32_t id;
  uint32_t restart;
  uid_t uid;
  gid_t gid;
  char name[EFS_PATH];      /* of the instance */
  char directory[EFS_PATH]; /* state of the job on this node */
  char mount[EFS_PATH];
};

/* What a user may ask for. */
struct efs_options {
  char job[EFS_PATH];
  char capacity[EFS_PATH];
  char keep[EFS_PATH], attach[EFS_PATH];
  char *in[64], *out[64];
  int ins, outs;
  int no_stage_out, in_job, keeps, bad;
};

/* options.c */
void efs_register_options(spank_t spank);
const struct efs_options* efs_given_options(void);
int efs_is_wanted(void); /* some option asks for efs */

/* site.c */
/* What is wrong with the words is logged, and passed over. 0; EFS_SITE_UNKNOWN: it does not know
 * some key, as while nodes are upgraded one after the other; EFS_SITE_BAD: some value cannot be:
 * the default is in its place, or "" in that of a path. */
enum { EFS_SITE_UNKNOWN = 1, EFS_SITE_BAD = 2 };

int efs_read_site(struct efs_site* site, int count, char** words);
void efs_slurm_program(const struct efs_site* site, const char* name,
                       char* path); /* EFS_PATH bytes; of squeue, srun, sinfo: beside scontrol=, or
                                       found on the PATH */

/* job.c: state of jobs on this node, below site->state. All of it is root's. */
int efs_describe_job(spank_t spank, const struct efs_site* site, struct efs_job* job);
void efs_name_job(const struct efs_site* site, struct efs_job* job); /* from id and restart */
int efs_make_job(const struct efs_site* site, const struct efs_job* job);
int efs_write_file(const char* directory, const char* name, const char* text, mode_t mode,
                   uid_t owner);
int efs_read_file(const char* directory, const char* name, char* text,
                  size_t size); /* 0, or -1 where there is none */
void efs_remove_job(const struct efs_site* site, const struct efs_job* job);
void efs_remove_run(const struct efs_job*
                        job); /* the same, without the mount point, which all runs of a job share */
int efs_find_job(const struct efs_site* site,
                 struct efs_job* job); /* whatever restart is there: 1 if there is one */
int efs_is_there(const struct efs_site* site,
                 const struct efs_job* job); /* 1: its instance has a directory */
void efs_note_boot(const struct efs_job* job);
int efs_node_was_restarted(const struct efs_job* job); /* 1: since then; 0: not, or not known */
int efs_read_place(
    const struct efs_job* job, unsigned* node,
    unsigned* nodes); /* which of the job's nodes this one is, 0 the first; -1: not known */

/* keep.c: what a job keeps on the node for a later one of the same user. */
#define EFS_KEPT_NAME 32 /* bytes of a user's name for it, its end not counted */
/* Gives the job the instance that its flags ask for. -1: refused, and `why` says so. Without such a
 * flag: nothing. */
int efs_choose_kept(const struct efs_site* site, struct efs_job* job, const char* flags,
                    const char* const* environment, char* why, size_t size);
void efs_state_of(const struct efs_site* site, const struct efs_job* job,
                  const char* const* environment, char* state,
                  size_t size); /* as efs status says: "running", "kept", "dead", ... */
int efs_is_kept_now(const struct efs_site* site, const struct efs_job* job,
                    const char* const* environment); /* 1: stopped, whole, and there for the next */
/* The same of one that was just asked to be kept: up to ten seconds, for a daemon takes a moment to
 * go. */
int efs_will_be_kept(const struct efs_site* site, const struct efs_job* job,
                     const char* const* environment);
/* 1: what has the job's name was kept by this job itself, in a run before. */
int efs_has_kept(const struct efs_site* site, const struct efs_job* job);

/* EFS_OWN: its instance is alive, or says nothing, and it is this job's and no other's. Waits up to
 * a minute, where the hook has so much, for jobs that choose; EFS_NOBODY_CAN_SAY where they do not
 * come to an end. */
enum efs_life { EFS_OWN, EFS_NOT_OWN, EFS_NOBODY_CAN_SAY };
enum efs_life efs_whose_life(const struct efs_site* site, const struct efs_job* job,
                             const char* const* environment);
void efs_note_kept(const struct efs_site* site, const struct efs_job* job);
void efs_sweep_kept(const struct efs_site* site); /* removes what has been kept for too long */

/* ask.c: what slurmctld knows of a job. 1: an answer; 0: there is no such job; -1: nobody can say,
 * after some 20 s, or a minute of asking again where the job cannot do without; EFS_TOO_LONG: there
 * is no room for the answer. */
enum { EFS_TOO_LONG = -2 };

struct efs_record {
  char state[32];
  char limit[64];      /* of its time: "UNLIMITED", "10:00" */
  char host[EFS_PATH]; /* where the script runs */
};

int efs_ask_job(const struct efs_site* site, uint32_t id, struct efs_record* record);

/* What the job was given, on all its nodes, in Slurm's units. */
struct efs_allocated {
  char least[32]; /* "300M": memory asked for, for each node or for each CPU */
  char sum[32];   /* memory of all nodes */
  unsigned long long cpus, nodes;
};

int efs_ask_allocated(const struct efs_site* site, uint32_t id, struct efs_allocated* allocated);
/* How often slurmctld has put the job back into the queue; -1: nobody can say. */
int efs_ask_restarts(const struct efs_site* site, uint32_t id);
int efs_job_is_over(const struct efs_site* site,
                    uint32_t id); /* 1: yes; 0: no; -1: nobody can say */
int efs_job_is_completing(
    const struct efs_site* site,
    uint32_t id); /* its processes, or epilogs, have not ended on all its nodes */

/* Of one run of a job. ENDS: it is alive, or just about to end; OVER: for slurmctld it has ended on
 * all its nodes; SUPERSEDED: the job has begun again. */
enum efs_run_state { EFS_RUN_ENDS, EFS_RUN_OVER, EFS_RUN_SUPERSEDED, EFS_RUN_UNKNOWN };
enum efs_run_state efs_ask_run(const struct efs_site* site, uint32_t id, uint32_t restart);
int efs_has_script(const struct efs_site* site,
                   uint32_t id); /* of sbatch; likewise. salloc and srun have none */
/* Number and index of a job in an array; "" of one in none. */
#define EFS_NUMBER 16
int efs_ask_array(const struct efs_site* site, uint32_t id, char array[EFS_NUMBER],
                  char task[EFS_NUMBER]);

/* At its end: its number and index in an array ("" of one in none), and the output of its script as
 * it was asked for ("" where there is no script). */
struct efs_end {
  char array[EFS_NUMBER], task[EFS_NUMBER];
  char name[256], directory[512], output[1000];
};

int efs_ask_end(const struct efs_site* site, uint32_t id, struct efs_end* end);
int efs_ask_name(const struct efs_site* site, uint32_t id, char* name,
                 size_t size); /* the user has chosen it; 0 also where it is too long */
int efs_admin_comment(const struct efs_site* site, uint32_t id, char* comment, size_t size);
/* "name:1,other:2", of all that the job holds; "" where it is none. -1: nobody can say, or it is
 * longer. */
int efs_ask_licences(const struct efs_site* site, uint32_t id, char* licences, size_t size);
int efs_find_node(const struct efs_site* site, uint32_t id, unsigned* node,
                  unsigned* nodes); /* which of the job's nodes this one is: 0, or as above */

/* directives.c */
int efs_has_directives(const struct efs_site* site,
                       const struct efs_job* job); /* -1: nobody can say */
int efs_read_directives(const struct efs_site* site, const struct efs_job* job, char* text,
                        size_t size); /* the job file that they make; -1: they are none; 1:
                                         slurmctld does not give them */

/* memory.c: sizes as "64MiB", "" where nobody can tell. */
#define EFS_WHENCE 96

struct efs_memory {
  char job[64]; /* what the job gets on a node, at most; "" also where memory is nothing that Slurm
                   gives jobs */
  char whence[EFS_WHENCE]; /* the option or setting that says so */
  char node[64];           /* of the cluster's largest node */
};

void efs_memory_at_submission(const struct efs_site* site, struct efs_memory* memory);

/* On one of its nodes: what the job was given there, as far as slurmctld can tell. 0: what was
 * asked for; EFS_ALL_OF_NODE: the job asked for nothing, or all; -1: slurmctld cannot tell. Whether
 * the memory is the job's alone says efs_memory_is_counted(), 1: Slurm gives jobs memory. */
enum { EFS_ALL_OF_NODE = 1 };

int efs_memory_of_job(const struct efs_site* site, uint32_t id, char* text, size_t size);
int efs_memory_is_counted(const struct efs_site* site);

/* patience.c: what slurmd lets a prolog or an epilog take (PrologEpilogTimeout); then it kills it,
 * and drains the node. */
#define EFS_NO_END 2147483647
void efs_begin_hook(void); /* in one of them; nothing else has an end */
/* Seconds for its work, whole ones, the time to tell how it ended not among them; 0: it is time to
 * end; EFS_NO_END: it takes what it takes. */
int efs_seconds_left(void);
unsigned efs_hook_limit(void); /* PrologEpilogTimeout; 0: none */

/* run.c */
struct efs_outcome {
  const char* wanted; /* set by the caller: where there is no room for all, the lines that do not
                         begin so go; NULL: the last bytes go */
  int cut;            /* what was wanted did not fit */
  int code;           /* exit code; 128 + signal; 127: not run; -1: stopped, for `tick` said so */
  char text[65536];
  const struct efs_job* as; /* in: root runs it as this job's user; NULL: as itself */
};

/* Does something that may hang in another process; what it prints into its descriptor is the text.
 * -1: it took longer than `seconds`, or cannot be done; else what it returned. */
int efs_in_child(int (*what)(void*, int), void* with, int seconds, char* text, size_t size);
void efs_keep_alone(int end); /* in a child: this descriptor is its only one, as 3 */
/* Runs a program and keeps what it prints. `tick` is called every `seconds`; when it returns
 * nonzero the program gets SIGTERM and, 10 s later, SIGKILL; so it does after `seconds` where there
 * is no tick. 0 seconds: it takes what it takes. One that does not end then, as it hangs in the
 * kernel, is left alone. `environment` may be NULL: a small one of ours. */
void efs_run(const char* const* words, const char* const* environment, int seconds,
             int (*tick)(void*), void* what, struct efs_outcome* outcome);

/* text.c */
int efs_copy(char* to, size_t size, const char* from); /* -1: too long; `to` is "" then */
int efs_format(char* to, size_t size, const char* format, ...)
    __attribute__((format(printf, 3, 4)));
int efs_json_text(const char* json, const char* key, char* value,
                  size_t size); /* string member of the outermost object */
int efs_json_value(const char* json, const char* key, char* value,
                   size_t size); /* any member of it, as it stands there, whole */
int efs_json_item(const char* json, const char* key, unsigned number, char* value,
                  size_t size); /* likewise, of an array that is a member of it */
void efs_json_quote(const char* text, char* quoted, size_t size);
int efs_is_kept_name(const char* name); /* letters, digits, . _ -, at most EFS_KEPT_NAME; begins
                                           with a letter or digit */
int efs_has_word(const char* flags,
                 const char* word); /* 1: it is one of the words; a value may be called the same */
int efs_flag(
    const char* flags, const char* key, char* value,
    size_t size); /* the value of KEY=VALUE among the words; `key` ends in =. 1: it is there */
void efs_one_line(char* text); /* newlines to "; ", other control characters to ? */

/* notice.c: telling people and other nodes. None of it can fail a job. */
int efs_comment(const struct efs_site* site, const struct efs_job* job,
                const char* text); /* 0; else slurmctld did not take it: -1: in time, or a code: as
                                      of a job that has ended */
/* Of a job that has ended: slurmctld takes none any more, but the site's accounting does
 * (slurmdbd), where there is one. */
void efs_comment_in_accounting(const struct efs_site* site, const struct efs_job* job,
                               const char* text);
void efs_publish(const struct efs_site* site, const struct efs_job* job, const char* state,
                 const char* text);
void efs_publish_more(const struct efs_site* site, const struct efs_job* job, const char* state,
                      const char* text,
                      const char* more); /* members of JSON, each behind a comma */
/* Which job a task of an array is: slurmctld soon forgets. */
void efs_publish_task(const struct efs_site* site, const struct efs_job* job, const char* array,
                      const char* task);
int efs_find_failure(
    const struct efs_site* site, const struct efs_job* job, char* text,
    size_t size); /* 1: some node failed; 2: some could not stage, and no fault of the job's */

/* output.c: the last line of the job's output, where it has a script, and the site wants it; NULL:
 * nothing to tell. It cannot fail, nor hang. */
void efs_tell_end(const struct efs_site* site, const struct efs_job* job, const char* text,
                  int is_trouble);

/* watch.c */
void efs_watch(
    const struct efs_site* site, const struct efs_job* job,
    const char* status); /* from now on, in a process of its own; what `efs start --json` said */
void efs_read_figures(
    const char* status, char* more,
    size_t size); /* of `efs status --json`, for efs_publish_more(); "" where it has none */

/* unsaved.c: tells of runs whose results were not back what has become of them; not of this job. */
void efs_review_unsaved(const struct efs_site* site, uint32_t but);

/* one per context; each returns what its hook must return */
int efs_allocator_check(spank_t spank, const struct efs_site* site);

struct efs_text {
  char* bytes;
  size_t length, size;
  int full; /* there was no room for all */
};

int efs_make_job_file(const struct efs_options* given,
                      struct efs_text* text); /* job_file.c: 0, or -1 and it has said why */
void efs_note_inherited(
    void); /* before Slurm has looked at options: it puts them into the environment, too */
int efs_check_step(void); /* of srun inside of an allocation */
int efs_prolog(spank_t spank, const struct efs_site* site);
/* Minutes of the time limit that went into staging, as far as they are not given back yet: on the
 * node of the job's script alone, in its prolog, and, as other nodes may have taken longer, when
 * the script starts. Of an allocation without a script on its first node, in the prolog. */
void efs_give_back(const struct efs_site* site, const struct efs_job* job);
/* The licence that the job had for its stage-in (job_submit.lua), where the site has one: on one
 * node, when all have staged in. */
void efs_give_back_licence(const struct efs_site* site, const struct efs_job* job);
int efs_epilog(spank_t spank, const struct efs_site* site);
/* holders.c */
void efs_kill_holders(const struct efs_job* job); /* the user's processes that hold the mount, or a
                                                     view of it; not efs's own */
int efs_signal_daemons(const struct efs_site* site, const struct efs_job* job,
                       int number);            /* the job's own efsd; 0: none; how many there are */
int efs_is_mounted(const struct efs_job* job); /* before this process */

void efs_stop_job(const struct efs_site* site, const struct efs_job* job);
int efs_user_init(spank_t spank, const struct efs_site* site);
int efs_task_init_privileged(spank_t spank, const struct efs_site* site, int site_is_bad);
int efs_task_init(spank_t spank, const struct efs_site* site);
/* in_job.c, before the task is the user's: what its stage-out will need of root. */
void efs_prepare_in_job(spank_t spank, const struct efs_site* site);
#define EFS_STAGING_OUT \
  "EFS_STAGING_OUT" /* in the environment of a step that stages out: the number of its job */
void efs_sweep(const struct efs_site* site);

#endif
