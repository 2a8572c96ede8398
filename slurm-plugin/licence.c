/* SPDX-License-Identifier: BSD-3-Clause */
/* The alternative to the queue that uses licences: conf/slurm/job_submit.lua gives every job
 * with efs a licence of the cluster, so that slurmctld limits the number of jobs that start at
 * the same time. The licence is returned when the inputs are there: root can change a running
 * job. If that fails, the job holds the licence until its end. */
#include <string.h>

#include "efs_plugin.h"

/* NAME, NAME:COUNT or NAME@SERVER. */
static int is_of(const char* word, size_t length, const char* name) {
  const size_t n = strlen(name);
  return length >= n && strncmp(word, name, n) == 0 &&
         (length == n || strchr(":=@", word[n]) != NULL);
}

/* Lists the other licences, which the job may have requested itself. Returns 1 if `name` was in
 * the list. */
static int leave_out(const char* licences, const char* name, char* others, size_t size) {
  size_t used = 0;
  int found = 0;
  others[0] = '\0';
  for (const char* p = licences; *p != '\0'; p += *p == ',') {
    const size_t length = strcspn(p, ",");
    if (is_of(p, length, name)) {
      found = 1;
    } else if (efs_format(others + used, size - used, "%s%.*s", used > 0 ? "," : "", (int)length,
                          p) != 0) {
      return 0;
    }
    used = strlen(others);
    p += length;
  }
  return found;
}

void efs_give_back_licence(const struct efs_site* site, const struct efs_job* job) {
  static struct efs_outcome outcome;
  char licences[1024], others[1024], id[48], change[1024 + 16];
  const char* words[] = {site->scontrol, "update", id, change, NULL};
  if (site->licence[0] == '\0') {
    return;
  }
  if (efs_ask_licences(site, job->id, licences, sizeof licences) != 0) {
    slurm_info(
        "efs: job %u: slurmctld does not say which licences the job has; the job holds %s to its "
        "end",
        job->id, site->licence);
    return;
  }
  if (!leave_out(licences, site->licence, others, sizeof others)) {
    return;
  }
  efs_format(id, sizeof id, "JobId=%u", job->id);
  efs_format(change, sizeof change, "Licenses=%s", others);
  efs_run(words, NULL, 20, &outcome);
  if (outcome.code != 0) {
    slurm_info("efs: job %u: the job holds the licence %s to its end: %.200s", job->id,
               site->licence, outcome.text);
  }
}
