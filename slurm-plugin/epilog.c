/* After the job, on every node, as root, once all its steps are over: unmount, stage out, tear down. Harmless when
 * called again, or where nothing was started. It succeeds in any case, for an epilog that fails drains the node. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "efs_plugin.h"

static int leads_below(const char *link, const char *mount) {
  char target[EFS_PATH];
  const size_t length = strlen(mount);
  const ssize_t n = readlink(link, target, sizeof target - 1);
  if (n <= 0) return 0;
  target[n] = '\0';
  return strncmp(target, mount, length) == 0 && (target[length] == '\0' || target[length] == '/');
}

/* A line of /proc that has it, and not another path that only begins like it. */
static int names(const char *line, const char *mount) {
  const size_t length = strlen(mount);
  const char *p;
  for (p = strstr(line, mount); p != NULL; p = strstr(p + 1, mount))
    if (p[length] == '/' || p[length] == '\n' || p[length] == '\0' || p[length] == ' ') return 1;
  return 0;
}

static int maps_below(const char *process, const char *mount) {
  char path[EFS_PATH], line[1024];
  int found = 0;
  FILE *maps;
  efs_format(path, sizeof path, "%s/maps", process);
  maps = fopen(path, "re");
  while (!found && maps != NULL && fgets(line, sizeof line, maps) != NULL) found = names(line, mount);
  if (maps != NULL) fclose(maps);
  return found;
}

static int holds(const char *process, const char *mount) {
  static const char *const links[] = {"cwd", "root", "exe"};
  char path[EFS_PATH];
  const struct dirent *entry;
  DIR *fds;
  size_t i;
  int found = 0;
  for (i = 0; i < 3; ++i) {
    efs_format(path, sizeof path, "%s/%s", process, links[i]);
    if (leads_below(path, mount)) return 1;
  }
  efs_format(path, sizeof path, "%s/fd", process);
  fds = opendir(path);
  while (!found && fds != NULL && (entry = readdir(fds)) != NULL) {
    efs_format(path, sizeof path, "%s/fd/%s", process, entry->d_name);
    found = leads_below(path, mount);
  }
  if (fds != NULL) closedir(fds);
  return found || maps_below(process, mount);
}

/* In a private view the mount has a second place, which an unmount of the first does not see. */
static int views(const char *process, const struct efs_job *job) {
  char path[EFS_PATH], line[4096], ours[64], theirs[64];
  ssize_t n, m;
  int found = 0;
  FILE *mounts;
  efs_format(path, sizeof path, "%s/ns/mnt", process);
  n = readlink("/proc/self/ns/mnt", ours, sizeof ours);
  m = readlink(path, theirs, sizeof theirs);
  if (m <= 0 || (n == m && memcmp(ours, theirs, (size_t)n) == 0)) return 0;
  efs_format(path, sizeof path, "%s/mountinfo", process);
  mounts = fopen(path, "re");
  while (!found && mounts != NULL && fgets(line, sizeof line, mounts) != NULL) found = strstr(line, job->name) != NULL;
  if (mounts != NULL) fclose(mounts);
  return found;
}

/* What a job left behind and Slurm did not find. Only the user's own processes, and only those on this mount. */
static void kill_holders(const struct efs_job *job) {
  DIR *processes = opendir("/proc");
  const struct dirent *entry;
  char path[EFS_PATH];
  struct stat st;
  while (processes != NULL && (entry = readdir(processes)) != NULL) {
    const long pid = strtol(entry->d_name, NULL, 10);
    if (pid <= 1 || job->uid == 0) continue;
    efs_format(path, sizeof path, "/proc/%ld", pid);
    if (stat(path, &st) != 0 || st.st_uid != job->uid || !(holds(path, job->mount) || views(path, job))) continue;
    slurm_info("efs: job %u: process %ld still holds %s: killed", job->id, pid, job->mount);
    kill((pid_t)pid, SIGKILL);
  }
  if (processes != NULL) closedir(processes);
}

static int is_daemon_of(const char *process, const struct efs_job *job) {
  char path[EFS_PATH], line[8192];
  ssize_t n;
  int fd;
  efs_format(path, sizeof path, "%s/cmdline", process);
  fd = open(path, O_RDONLY | O_CLOEXEC);
  n = fd >= 0 ? read(fd, line, sizeof line) : -1;
  if (fd >= 0) close(fd);
  return n > 0 && memmem(line, (size_t)n, job->name, strlen(job->name) + 1) != NULL; /* an argument that ends so */
}

/* They are the user's, who may have stopped them; a stop would wait for them for ever. */
static void wake_daemons(const struct efs_job *job) {
  DIR *processes = opendir("/proc");
  const struct dirent *entry;
  char path[EFS_PATH];
  struct stat st;
  while (processes != NULL && (entry = readdir(processes)) != NULL) {
    const long pid = strtol(entry->d_name, NULL, 10);
    efs_format(path, sizeof path, "/proc/%ld", pid);
    if (pid > 1 && stat(path, &st) == 0 && st.st_uid == job->uid && is_daemon_of(path, job)) kill((pid_t)pid, SIGCONT);
  }
  if (processes != NULL) closedir(processes);
}

static void send_mail(const struct efs_site *site, const struct efs_job *job, const char *text) {
  static struct efs_outcome outcome;
  char id[32], uid[32];
  const char *words[] = {site->mail, id, uid, site->node, text, NULL};
  if (site->mail[0] == '\0') return;
  efs_format(id, sizeof id, "%u", job->id);
  efs_format(uid, sizeof uid, "%u", (unsigned)job->uid);
  efs_run(words, NULL, 60, NULL, NULL, &outcome);
}

static void not_saved(const struct efs_site *site, const struct efs_job *job, const char *text) {
  char result[EFS_TEXT];
  efs_format(result, sizeof result, "unsaved results are not back: %.1500s; still in the buffer of %s (%s)", text, site->node, job->name);
  efs_one_line(result);
  slurm_error("efs: job %u: %s", job->id, result);
  efs_write_file(job->directory, "result", result, 0644, 0);
  efs_publish(site, job, "unsaved", result + strlen("unsaved "));
  efs_comment(site, job, result + strlen("unsaved "));
  send_mail(site, job, result + strlen("unsaved "));
}

/* The errno in what `efs --json` printed; 0 where there is none. Keys are sorted: it comes first. */
static long code_of(const struct efs_outcome *outcome) {
  const char *document = strstr(outcome->text, "{\"code\":");
  return outcome->code != 0 && document != NULL ? strtol(document + strlen("{\"code\":"), NULL, 10) : 0;
}

/* In use: its holders are killed. The worker died: its successor has what it had. Either way it is worth asking again. */
static int is_passing(long code) {
  static const int codes[] = {EBUSY, ECONNRESET, EPIPE, ECONNREFUSED, ENOENT, EAGAIN};
  size_t i;
  for (i = 0; i < sizeof codes / sizeof codes[0]; ++i)
    if (code == codes[i]) return 1;
  return 0;
}

static void ask_to_stop(const struct efs_site *site, const struct efs_job *job, const char *const *words, const char *const *environment, struct efs_outcome *outcome) {
  int tries;
  for (tries = 0; tries < 10; ++tries) {
    wake_daemons(job);
    if (tries > 0) kill_holders(job);
    efs_run(words, environment, 0, NULL, NULL, outcome); /* a stage-out takes what it takes */
    if (!is_passing(code_of(outcome)) || !efs_is_there(site, job)) return;
    sleep(1);
  }
}

/* It has stopped, whole, and stays for another job of the user's; for how long, a record says. */
static int is_kept(const struct efs_site *site, const struct efs_job *job, const char *const *environment) {
  char text[EFS_TEXT];
  if (!efs_is_kept_now(site, job, environment)) return 0;
  efs_note_kept(site, job);
  efs_format(text, sizeof text, "results are back, and the files stay on %s as %s", site->node, job->name);
  efs_publish(site, job, "kept", text);
  return 1;
}

/* It is dead, and what is left of it is of no use: the user has stopped it with --keep, or everything is back. */
static int is_cleaned(const struct efs_site *site, const struct efs_job *job, const char *const *environment) {
  static struct efs_outcome outcome;
  const char *words[] = {site->efs, "clean", "--json", job->name, NULL};
  efs_run(words, environment, 0, NULL, NULL, &outcome);
  return outcome.code == 0;
}

static void stop_locked(const struct efs_site *site, const struct efs_job *job) {
  static struct efs_outcome outcome;
  char runtime[EFS_PATH + 24], result[EFS_TEXT], flags[160], error[EFS_TEXT], name[EFS_KEPT_NAME + 1];
  const char *environment[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", runtime, NULL};
  const char *words[6];
  int n = 0, started, keeps, lasts, good;
  if (efs_read_file(job->directory, "result", result, sizeof result) != 0) result[0] = '\0';
  if (efs_read_file(job->directory, "flags", flags, sizeof flags) != 0) flags[0] = '\0';
  efs_format(runtime, sizeof runtime, "EFS_RUNTIME_DIR=%s", site->run);
  keeps = efs_flag(flags, "keep=", name, sizeof name);
  lasts = keeps || efs_flag(flags, "attach=", name, sizeof name);
  if (strncmp(result, "unasked ", 8) == 0) {
    efs_remove_job(site, job);
    return;
  }
  started = strncmp(result, "running ", 8) == 0 || strncmp(result, "unsaved ", 8) == 0;
  if (started && !efs_is_there(site, job)) {
    efs_publish(site, job, "done", "the job has stopped it itself");
    efs_remove_job(site, job);
    return;
  }
  if (!started && lasts) { /* what may be there is another job's, or was there before */
    efs_remove_job(site, job);
    return;
  }
  if (site->view[0] != '\0') kill_holders(job);
  words[n++] = site->efs;
  words[n++] = "stop";
  words[n++] = "--json";
  if (!started || efs_has_word(flags, "no-stage-out")) words[n++] = "--no-stage-out";
  if (keeps) words[n++] = "--keep";
  words[n++] = job->name;
  words[n] = NULL;
  if (started) efs_publish(site, job, "staging-out", "");
  ask_to_stop(site, job, words, environment, &outcome);
  if (keeps && is_kept(site, job, environment)) {
    efs_remove_job(site, job);
    return;
  }
  good = outcome.code == 0 || (code_of(&outcome) == ESRCH && is_cleaned(site, job, environment));
  if (!good && efs_json_text(outcome.text, "error", error, sizeof error) != 0 && efs_json_text(outcome.text, "summary", error, sizeof error) != 0)
    efs_format(error, sizeof error, "efs stop gave %d: %.1500s", outcome.code, outcome.text);
  if (!good && started) {
    not_saved(site, job, error);
    return;
  }
  if (started) efs_publish(site, job, "done", efs_has_word(flags, "no-stage-out") ? "nothing was staged out, as asked for" : "all results are back");
  efs_remove_job(site, job);
}

/* One at a time: the sweep of a slurmd that has just come back may meet the epilog. */
void efs_stop_job(const struct efs_site *site, const struct efs_job *job) {
  struct stat st;
  const int at = open(job->directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (at < 0) return;
  if (flock(at, LOCK_EX) == 0 && lstat(job->directory, &st) == 0) stop_locked(site, job);
  close(at);
}

int efs_epilog(spank_t spank, const struct efs_site *site) {
  struct efs_job job;
  if (efs_describe_job(spank, site, &job) == 0 && efs_find_job(site, &job)) efs_stop_job(site, &job);
  return 0;
}
