/* SPDX-License-Identifier: BSD-3-Clause */
/* Simulates a process of Slurm with one job, for hooks_test.sh: loads the plugin and calls one
 * hook.
 *   one_hook PLUGIN HOOK [ARGUMENT...]    (of plugstack.conf)
 * The environment provides the answers to the plugin's queries to Slurm: HOOK_CONTEXT
 * (job_script, remote, slurmd, allocator, local), HOOK_JOB, HOOK_UID, HOOK_GID ("": not
 * provided), HOOK_STEP ("batch" or a number), HOOK_TIMEOUT (PrologEpilogTimeout), HOOK_OPTION
 * (NAME=VALUE of the job, in lines), HOOK_OPT_mem and so on (sbatch's own options). With
 * HOOK_LISTEN the process has a listening socket, as slurmd has, and writes its port to that
 * file. After a hook that returns 0, a shell runs HOOK_THEN as the job's user, in place of this
 * process. HOOK_TELL_SYNC reports calls to fsync; the file HOOK_TELL_OPENS lists the opened
 * files. With HOOK_TELL_FDS=PATH, a process that calls stat on PATH lists its open descriptors. */
#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <grp.h>
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static const char* say(const char* name, const char* without) {
  return getenv(name) != NULL ? getenv(name) : without;
}

#define LOG(name)                        \
  void name(const char* format, ...) {   \
    va_list arguments;                   \
    va_start(arguments, format);         \
    fprintf(stderr, #name ": ");         \
    vfprintf(stderr, format, arguments); \
    fprintf(stderr, "\n");               \
    va_end(arguments);                   \
  }
LOG(slurm_error)
LOG(slurm_info)
LOG(slurm_verbose)
LOG(slurm_spank_log)

spank_context_t spank_context(void) {
  const char* context = say("HOOK_CONTEXT", "job_script");
  if (strcmp(context, "allocator") == 0) {
    return S_CTX_ALLOCATOR;
  }
  if (strcmp(context, "local") == 0) {
    return S_CTX_LOCAL;
  }
  return strcmp(context, "remote") == 0   ? S_CTX_REMOTE
         : strcmp(context, "slurmd") == 0 ? S_CTX_SLURMD
                                          : S_CTX_JOB_SCRIPT;
}

spank_err_t spank_get_item(spank_t spank, spank_item_t item, ...) {
  const char* step = say("HOOK_STEP", "batch");
  spank_err_t known = ESPANK_SUCCESS;
  va_list arguments;
  (void)spank;
  va_start(arguments, item);
  if (item == S_JOB_ID) {
    *va_arg(arguments, uint32_t*) = (uint32_t)atoi(say("HOOK_JOB", "7"));
  } else if (item == S_JOB_UID) {
    *va_arg(arguments, uid_t*) = (uid_t)atoi(say("HOOK_UID", "0"));
  } else if (item == S_JOB_GID && say("HOOK_GID", "0")[0] == '\0') {
    known = ESPANK_NOT_AVAIL;
  } else if (item == S_JOB_GID) {
    *va_arg(arguments, gid_t*) = (gid_t)atoi(say("HOOK_GID", "0"));
  } else if (item == S_JOB_STEPID) {
    *va_arg(arguments, uint32_t*) =
        strcmp(step, "batch") == 0 ? SLURM_BATCH_SCRIPT : (uint32_t)atoi(step);
  } else if (item == S_TASK_ID) {
    *va_arg(arguments, int*) = 0;
  } else if (item == S_SLURM_RESTART_COUNT) {
    *va_arg(arguments, uint32_t*) = 0;
  } else {
    known = ESPANK_BAD_ARG;
  }
  va_end(arguments);
  return known;
}

spank_err_t spank_option_register(spank_t spank, struct spank_option* option) {
  const char* given = getenv("HOOK_OPTION");
  const size_t length = strlen(option->name);
  (void)spank;
  for (; given != NULL && *given != '\0'; given += strcspn(given, "\n"), given += *given == '\n') {
    char value[1024];
    if (strncmp(given, option->name, length) != 0 || given[length] != '=') {
      continue;
    }
    snprintf(value, sizeof value, "%.*s", (int)strcspn(given + length + 1, "\n"),
             given + length + 1);
    option->cb(option->val, value, 1);
    setenv("_SLURM_SPANK_OPTION_efs_given", value,
           1); /* as Slurm does, of each option that it is given */
  }
  return ESPANK_SUCCESS;
}

spank_err_t spank_getenv(spank_t spank, const char* name, char* value, int size) {
  (void)spank;
  if (getenv(name) == NULL) {
    return ESPANK_ENV_NOEXIST;
  }
  snprintf(value, (size_t)size, "%s", getenv(name));
  return ESPANK_SUCCESS;
}

spank_err_t spank_setenv(spank_t spank, const char* name, const char* value, int overwrite) {
  (void)spank;
  return setenv(name, value, overwrite) == 0 ? ESPANK_SUCCESS : ESPANK_ERROR;
}

spank_err_t spank_unsetenv(spank_t spank, const char* name) {
  (void)spank;
  return unsetenv(name) == 0 ? ESPANK_SUCCESS : ESPANK_ERROR;
}

spank_err_t spank_job_control_setenv(spank_t spank, const char* name, const char* value,
                                     int overwrite) {
  return spank_setenv(spank, name, value, overwrite);
}

/* The settings that slurmd's processes have read from slurm.conf. */
slurm_conf_t slurm_conf = {.prolog_epilog_timeout = NO_VAL16};

/* The table of sbatch's own options. */
char opt[1];

static char* own_option(const char* name) {
  char variable[64];
  snprintf(variable, sizeof variable, "HOOK_OPT_%s", name);
  return getenv(variable);
}

char* slurm_option_get(void* table, const char* name) {
  return table == opt && own_option(name) != NULL ? strdup(own_option(name)) : NULL;
}

_Bool slurm_option_isset(void* table, const char* name) {
  return table == opt && own_option(name) != NULL;
}

/* Names with commas between them. */
typedef __typeof__(slurm_hostlist_create("")) hosts; /* depends on the release */

hosts slurm_hostlist_create(const char* list) {
  return (hosts)strdup(list);
}

void slurm_hostlist_destroy(hosts list) {
  free(list);
}

int slurm_hostlist_count(hosts list) {
  const char* p;
  int count = list != NULL;
  for (p = (const char*)list; p != NULL && *p != '\0'; ++p) {
    count += *p == ',';
  }
  return count;
}

int slurm_hostlist_find(hosts list, const char* name) {
  const char* p;
  int at = 0;
  for (p = (const char*)list; *p != '\0'; p += strcspn(p, ","), p += *p == ',', ++at) {
    if (strcspn(p, ",") == strlen(name) && strncmp(p, name, strlen(name)) == 0) {
      return at;
    }
  }
  return -1;
}

static void show(const char* what, int fd) {
  char link[64], target[512];
  ssize_t n;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  n = readlink(link, target, sizeof target - 1);
  if (n > 0) {
    dprintf(fd == 2 ? 1 : 2, "%s: %d %.*s\n", what, fd, (int)n, target);
  }
}

int fsync(int fd) {
  int (*real)(int);
  *(void**)&real = dlsym(RTLD_NEXT, "fsync");
  if (getenv("HOOK_TELL_SYNC") != NULL) {
    show("synced", fd);
  }
  return real(fd);
}

/* Writes to a file, because the opening process may have no other output. */
int open(const char* path, int flags, ...) {
  const char* told = getenv("HOOK_TELL_OPENS");
  int (*real)(const char*, int, ...);
  va_list arguments;
  mode_t mode;
  va_start(arguments, flags);
  mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  *(void**)&real = dlsym(RTLD_NEXT, "open");
  if (told != NULL) {
    const int file = real(told, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    dprintf(file, "%s\n", path);
    close(file);
  }
  return real(path, flags, mode);
}

int stat(const char* path, struct stat* st) {
  const char* told = getenv("HOOK_TELL_FDS");
  int (*real)(const char*, struct stat*);
  *(void**)&real = dlsym(RTLD_NEXT, "stat");
  if (told != NULL && strcmp(told, path) == 0) {
    FILE* file = fopen(say("HOOK_FDS_FILE", "/dev/null"), "we");
    char link[64], target[512];
    int fd;
    for (fd = 0; file != NULL && fd < 64; ++fd) {
      ssize_t n;
      snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
      n = readlink(link, target, sizeof target - 1);
      if (n > 0 && fd != fileno(file)) {
        fprintf(file, "%d %.*s\n", fd, (int)n, target);
      }
    }
    if (file != NULL) {
      fclose(file);
    }
  }
  return real(path, st);
}

/* Uses a separate address, so that no connection takes the port meanwhile. Returns 0 on success. */
static int listen_as_slurmd(const char* told) {
  struct sockaddr_in address = {.sin_family = AF_INET,
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1)};
  socklen_t size = sizeof address;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  FILE* file;
  if (fd < 0 || bind(fd, (struct sockaddr*)&address, size) != 0 || listen(fd, 1) != 0 ||
      getsockname(fd, (struct sockaddr*)&address, &size) != 0) {
    return -1;
  }
  file = fopen(told, "we");
  if (file == NULL) {
    return -1;
  }
  fprintf(file, "%d\n", ntohs(address.sin_port));
  return fclose(file);
}

int main(int count, char** words) {
  char symbol[64];
  int (*hook)(spank_t, int, char**), done;
  void* plugin = count < 3 ? NULL : dlopen(words[1], RTLD_NOW);
  if (plugin == NULL) {
    fprintf(stderr, "one_hook: %s\n", count < 3 ? "which plugin, which hook?" : dlerror());
    return 99;
  }
  if (getenv("HOOK_TIMEOUT") != NULL) {
    slurm_conf.prolog_epilog_timeout = (uint16_t)atoi(getenv("HOOK_TIMEOUT"));
  }
  *(void**)&hook = dlsym(plugin, "slurm_spank_init");
  if (hook != NULL && spank_context() != S_CTX_SLURMD) {
    hook(NULL, count - 3, words + 3); /* it registers the options */
  }
  if (getenv("HOOK_LISTEN") != NULL && listen_as_slurmd(getenv("HOOK_LISTEN")) != 0) {
    return 99;
  }
  snprintf(symbol, sizeof symbol, "slurm_spank_%s", words[2]);
  *(void**)&hook = dlsym(plugin, symbol);
  if (hook == NULL) {
    return 99;
  }
  done = hook(NULL, count - 3, words + 3);
  if (done != 0 || getenv("HOOK_THEN") == NULL) {
    return done == 0 ? 0 : 1;
  }
  if (setgroups(0, NULL) != 0 || setgid((gid_t)atoi(say("HOOK_GID", "0"))) != 0 ||
      setuid((uid_t)atoi(say("HOOK_UID", "0"))) != 0) {
    return 99;
  }
  execl("/bin/sh", "sh", "-c", getenv("HOOK_THEN"), NULL);
  return 99;
}
