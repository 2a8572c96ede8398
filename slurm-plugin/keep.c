/* SPDX-License-Identifier: BSD-3-Clause */
/* Instances that a job keeps on the node for a later job of the same user. Such an instance is
 * named slurm-kept.UID.NAME-NODE, so that users do not collide. A record that belongs to root
 * tells when it was kept:
 *   STATE/kept.UID.NAME-NODE    the number of the job that kept it; its mtime is the time
 * The instance's manifest says whether it is complete. The user owns the manifest, and could
 * deceive only the user's own jobs with it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "efs_plugin.h"

void efs_state_of(const struct efs_site* site, const struct efs_job* job,
                  const char* const* environment, char* state, size_t size) {
  static struct efs_outcome outcome;
  const char* words[] = {site->efs, "status", "--json", job->name, NULL};
  efs_run(words, environment, 60, &outcome);
  if (efs_json_text(outcome.text, "state", state, size) != 0) {
    efs_copy(state, size, "in a state that is unknown");
  }
}

int efs_will_be_kept(const struct efs_site* site, const struct efs_job* job,
                     const char* const* environment) {
  int tries;
  for (tries = 0; tries < 20 && efs_is_there(site, job); ++tries) {
    if (efs_is_kept_now(site, job, environment)) {
      return 1;
    }
    usleep(500000);
  }
  return 0;
}

int efs_is_kept_now(const struct efs_site* site, const struct efs_job* job,
                    const char* const* environment) {
  char state[64];
  efs_state_of(site, job, environment, state, sizeof state);
  return strcmp(state, "kept") == 0;
}

#define PATIENCE 60     /* seconds to wait for the lock: its holder may make several checks */
#define TO_ACT_ON_IT 10 /* seconds of the hook's time that the wait for the lock must leave */

/* Opens the lock of a user's kept instances. */
static int open_lock(const struct efs_site* site, uid_t uid) {
  char path[2 * EFS_PATH];
  struct stat st;
  int fd;
  if (efs_format(path, sizeof path, "%s/.lock.%u", site->state, (unsigned)uid) != 0) {
    return -1;
  }
  fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
  if (fd < 0) {
    return -1;
  }
  if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != 0 || (st.st_mode & 077) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

/* Locks a user's kept instances. A job that chooses one, and the sweep, hold this lock from
 * their check to their action. The lock is a file of root's that no other user can open, and so
 * cannot lock. Each user has a separate lock, because the user can delay the check of an
 * instance. Returns -1 if the lock is not free within `seconds`. */
static int lock_kept(const struct efs_site* site, uid_t uid, int seconds) {
  const time_t until = time(NULL) + seconds;
  const int fd = open_lock(site, uid);
  int locked;
  if (fd < 0) {
    return -1;
  }
  while (!(locked = flock(fd, LOCK_EX | LOCK_NB) == 0) && errno == EWOULDBLOCK &&
         time(NULL) < until && efs_seconds_left() > TO_ACT_ON_IT) {
    usleep(200000);
  }
  if (locked) {
    return fd;
  }
  close(fd);
  return -1;
}

/* Returns whether the job with this state directory has chosen the instance and its epilog has not
 * stopped it yet. */
static int uses(const char* directory, const char* instance) {
  char name[EFS_PATH], result[EFS_TEXT];
  if (efs_read_file(directory, "instance", name, sizeof name) != 0 || strcmp(name, instance) != 0) {
    return 0;
  }
  return efs_read_file(directory, "result", result, sizeof result) != 0 ||
         strncmp(result, "running ", 8) == 0;
}

/* Returns whether a job on this node has chosen the instance and its epilog has not stopped it
 * yet. Ignores the job `but`. */
static int has_job(const struct efs_site* site, const char* instance, const struct efs_job* but) {
  DIR* state = opendir(site->state);
  const struct dirent* entry;
  int found = 0;
  while (!found && state != NULL && (entry = readdir(state)) != NULL) {
    char directory[2 * EFS_PATH], more;
    unsigned id, restart;
    if (sscanf(entry->d_name, "%u.%u%c", &id, &restart, &more) != 2 ||
        efs_format(directory, sizeof directory, "%s/%s", site->state, entry->d_name) != 0) {
      continue;
    }
    if (but == NULL || strcmp(directory, but->directory) != 0) {
      found = uses(directory, instance);
    }
  }
  if (state != NULL) {
    closedir(state);
  }
  return found;
}

/* A job's request for an instance that is kept. */
struct wish {
  const struct efs_site* site;
  const char* name;
  int attaches; /* to an instance that is there; 0: makes a new one */
  const char* const* environment;
  char* why; /* the reason of a refusal, EFS_TEXT bytes */
};

/* Rejects an instance that is missing, or that is not in the state in which it was kept. */
static int may_attach(const struct wish* wish, const struct efs_job* job) {
  const struct efs_site* site = wish->site;
  const char* name = wish->name;
  char state[64];
  if (!efs_is_there(site, job)) {
    efs_format(wish->why, EFS_TEXT,
               "you have nothing on %s that was kept as %s. An earlier job keeps it with "
               "--efs-keep=%s; ask for the same node (-w) with --efs-attach. It may have been "
               "removed after %d hours, or by a restart of the node",
               site->node, name, name, site->keep);
    return 0;
  }
  efs_state_of(site, job, wish->environment, state, sizeof state);
  if (strcmp(state, "kept") == 0) {
    return 1;
  }
  if (strcmp(state, "dead") == 0) {
    efs_format(wish->why, EFS_TEXT,
               "%s on %s was left by a job that died, or whose results are not exported. Export "
               "them: efs salvage %s",
               name, site->node, job->name);
  } else {
    efs_format(
        wish->why, EFS_TEXT,
        "%s on %s is in use by another job of yours (%s). Submit with --dependency=afterany:JOB",
        name, site->node, state);
  }
  return 0;
}

static const char* record_of(const struct efs_job* job) {
  return job->name + strlen("slurm-");
}

int efs_has_kept(const struct efs_site* site, const struct efs_job* job) {
  char text[32], id[32];
  efs_format(id, sizeof id, "%u", job->id);
  return strncmp(job->name, "slurm-kept.", strlen("slurm-kept.")) == 0 &&
         efs_read_file(site->state, record_of(job), text, sizeof text) == 0 &&
         strcmp(text, id) == 0;
}

/* A run before a requeue has kept the instance: this run continues with it. */
static int is_own(const struct efs_site* site, const struct efs_job* job,
                  const char* const* environment) {
  return efs_has_kept(site, job) && efs_will_be_kept(site, job, environment);
}

static int may_keep(const struct wish* wish, const struct efs_job* job) {
  if (!efs_is_there(wish->site, job) || is_own(wish->site, job, wish->environment)) {
    return 1;
  }
  efs_format(wish->why, EFS_TEXT,
             "%s has files of yours already that are kept as %s. Continue with them "
             "(--efs-attach=%s), or choose another name for --efs-keep",
             wish->site->node, wish->name, wish->name);
  return 0;
}

enum efs_life efs_whose_life(const struct efs_site* site, const struct efs_job* job,
                             const char* const* environment) {
  char state[64] = "dead";
  int lock;
  if (!efs_is_there(site, job)) {
    return EFS_NOT_OWN;
  }
  lock = lock_kept(site, job->uid,
                   PATIENCE); /* otherwise another job could choose it between two checks */
  if (lock < 0) {
    return EFS_NOBODY_CAN_SAY;
  }
  if (efs_is_there(site, job) && !has_job(site, job->name, job)) {
    efs_state_of(site, job, environment, state, sizeof state);
  }
  close(lock);
  return strcmp(state, "kept") != 0 && strcmp(state, "dead") != 0 ? EFS_OWN : EFS_NOT_OWN;
}

/* An instance in use, or with results that exist nowhere else, stays: efs clean ensures this. */
static void sweep_one(const struct efs_site* site, const char* record) {
  static struct efs_outcome outcome;
  struct efs_job job;
  char runtime[EFS_PATH + 24], path[2 * EFS_PATH];
  const char* environment[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                               runtime, NULL};
  const char* words[] = {site->efs, "clean", job.name, NULL};
  memset(&job, 0, sizeof job);
  efs_format(runtime, sizeof runtime, "EFS_RUNTIME_DIR=%s", site->run);
  efs_format(job.name, EFS_PATH, "slurm-%.400s", record);
  if (has_job(site, job.name, NULL)) {
    return;
  }
  if (efs_is_there(site, &job)) {
    efs_run(words, environment, 60, &outcome);
  }
  if (efs_is_there(site, &job)) {
    return;
  }
  slurm_info("efs: %s was kept for more than %d hours, or is gone: removed", job.name, site->keep);
  if (efs_format(path, sizeof path, "%s/%s", site->state, record) == 0) {
    unlink(path);
  }
}

/* If a job of that user holds the lock, the next sweep will do. */
void efs_sweep_kept(const struct efs_site* site) {
  DIR* state = opendir(site->state);
  const struct dirent* entry;
  struct stat st;
  unsigned uid;
  while (state != NULL && (entry = readdir(state)) != NULL) {
    int lock;
    if (sscanf(entry->d_name, "kept.%u.", &uid) != 1 ||
        fstatat(dirfd(state), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
      continue;
    }
    if (time(NULL) - st.st_mtime <= (time_t)site->keep * 3600 ||
        (lock = lock_kept(site, (uid_t)uid, 0)) < 0) {
      continue;
    }
    sweep_one(site, entry->d_name);
    close(lock);
  }
  if (state != NULL) {
    closedir(state);
  }
}

/* Requires the lock. */
static int choose_locked(const struct wish* wish, struct efs_job* job) {
  const char* node = wish->site->node;
  struct efs_job chosen = *job;
  efs_format(chosen.name, EFS_PATH, "slurm-kept.%u.%s-%.32s", (unsigned)job->uid, wish->name, node);
  if (has_job(wish->site, chosen.name, NULL)) {
    efs_format(wish->why, EFS_TEXT,
               "%s on %s is in use by another job of yours. Submit with --dependency=afterany:JOB",
               wish->name, node);
  } else if (!(wish->attaches ? may_attach(wish, &chosen) : may_keep(wish, &chosen))) {
    slurm_info("efs: job %u: %s is refused to it", job->id, chosen.name);
  } else if (efs_write_file(job->directory, "instance", chosen.name, 0644, 0) != 0) {
    efs_format(wish->why, EFS_TEXT, "the state of the job cannot be kept on this node");
  }
  if (wish->why[0] != '\0') {
    return -1;
  }
  *job = chosen;
  return 0;
}

/* Returns whether the site keeps instances, and the name is valid. */
static int is_possible(const struct wish* wish) {
  if (wish->site->keep == 0) {
    efs_format(wish->why, EFS_TEXT, "this site keeps nothing on its nodes (--efs-keep)");
  } else if (!efs_is_kept_name(wish->name)) {
    efs_format(wish->why, EFS_TEXT, "that is not a valid name for --efs-keep or --efs-attach");
  }
  return wish->why[0] == '\0';
}

static int choose(const struct wish* wish, struct efs_job* job) {
  const int lock = lock_kept(wish->site, job->uid, PATIENCE);
  int done = -1;
  if (lock >= 0) {
    done = choose_locked(wish, job);
    close(lock);
  }
  if (done != 0 && wish->why[0] == '\0') {
    efs_format(wish->why, EFS_TEXT,
               "your kept files on %s (--efs-keep, --efs-attach) are locked by another job of "
               "yours (%s/.lock.%u). Submit again; if it stays so, tell the administrators",
               wish->site->node, wish->site->state, (unsigned)job->uid);
  }
  return done;
}

int efs_choose_kept(const struct efs_site* site, struct efs_job* job, const char* flags,
                    const char* const* environment, char why[EFS_TEXT]) {
  char name[EFS_KEPT_NAME + 1];
  const int attaches = efs_flag(flags, "attach=", name, sizeof name),
            keeps = !attaches && efs_flag(flags, "keep=", name, sizeof name);
  const struct wish wish = {
      .site = site, .name = name, .attaches = attaches, .environment = environment, .why = why};
  why[0] = '\0';
  if (keeps && name[0] == '\0') {
    efs_format(name, sizeof name, "%u", job->id);
  }
  if ((attaches || keeps) && !is_possible(&wish)) {
    return -1;
  }
  efs_sweep_kept(site);
  return attaches || keeps ? choose(&wish, job) : 0;
}

void efs_note_kept(const struct efs_site* site, const struct efs_job* job) {
  char id[32];
  efs_format(id, sizeof id, "%u", job->id);
  if (strncmp(job->name, "slurm-kept.", strlen("slurm-kept.")) == 0) {
    efs_write_file(site->state, record_of(job), id, 0644, 0);
  }
}
