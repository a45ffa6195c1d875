//go:build linux

package command

import (
	"encoding/json"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/cmd/wllock/internal/show"
)

// Did my job run, when, where, and how did it end?
func TestJobs(t *testing.T) {
	t.Parallel()
	_, env := redis(t)
	env = append(env, "WLLOCK_INSTANCE=web-1")
	exits(t, no, env, "jobs", "--within", "25h", "cron", "report")
	exits(t, 3, env, "run", "cron", "report", "--", "sh", "-c", "exit 3")
	out, _ := exits(t, 0, env, "jobs")
	require.Regexp(t, `^JOB +LAST RUN +TOOK +RESULT +HOST +LAST SUCCESS +NEXT
shop:cron:report +\S+ ago +\S+ +exit 3 +web-1 +never +any time
$`, out)
	exits(t, 0, env, "run", "--hold-at-least", "1h", "cron", "report", "--", "true")
	exits(t, 0, env, "run", "cron", "other", "--", "true")
	exits(t, notAcquired, env, "run", "-n", "cron", "report", "--", "true")
	out, _ = exits(t, 0, env, "jobs", "shop:cron")
	require.Regexp(t, `(?m)^shop:cron:report +\S+ ago +\S+ +ok +web-1 +\S+ ago +in (1h00m|59m\d\ds)$`, out)

	out, _ = exits(t, 0, env, "jobs", "--within", "25h")
	require.Empty(t, out)
	time.Sleep(10 * time.Millisecond)
	out, _ = exits(t, no, env, "jobs", "--within", "1ms", "--json", "cron", "report")
	var jobs []show.Job
	require.NoError(t, json.Unmarshal([]byte(out), &jobs))
	require.Len(t, jobs, 1)
	require.Equal(t, "shop:cron:report", jobs[0].Key)
	require.Equal(t, jobs[0].Last, *jobs[0].Success)
	require.Len(t, jobs[0].Last.Fence, 19)
	require.Greater(t, time.Until(jobs[0].Last.Until), 50*time.Minute)

	out, _ = exits(t, 0, env, "jobs", "--metrics", "cron", "report")
	require.Regexp(t, `(?m)^wllock_job_last_success_timestamp_seconds\{wllock_system="shop",wllock_name="cron",wllock_key="report"\} \d+(\.\d+)?$`, out)
	rules, err := os.ReadFile("../../../../deploy/alerts_jobs.yaml")
	require.NoError(t, err)
	for _, metric := range regexp.MustCompile(`wllock_job_\w+`).FindAllString(string(rules), -1) {
		require.Contains(t, out, "# TYPE "+metric+" gauge\n")
	}
	_, out, _ = run(t, env, "who", "cron", "report")
	require.Regexp(t, `(?m)^  last run +ok, \S+ ago, took \S+, on web-1$`, out)

	exits(t, 3, env, "run", "--hold-at-least", "1h", "--retry-failed", "cron", "retried", "--", "sh", "-c", "exit 3")
	out, _ = exits(t, no, env, "who", "cron", "retried")
	require.Regexp(t, `^shop:cron:retried is free
  fence +\d{19} at most
  last acquired +20\S+ \S+Z, \S+ ago
  waiting +0
  last run +exit 3, \S+ ago, took \S+, on web-1
  last success +never
$`, out)
	out, _ = exits(t, no, env, "who", "--json", "cron", "retried")
	var lock show.Lock
	require.NoError(t, json.Unmarshal([]byte(out), &lock))
	require.WithinDuration(t, lock.LastRun.Began, lock.LastAcquired, time.Minute)
	require.Nil(t, lock.LastSuccess)
	out, _ = exits(t, 0, env, "jobs", "shop:cron:retried")
	require.Contains(t, out, "any time\n", "it may run again")
	exits(t, 0, env, "run", "-n", "--hold-at-least", "1h", "--retry-failed", "cron", "retried", "--", "true")
	exits(t, notAcquired, env, "run", "-n", "cron", "retried", "--", "true")

	exits(t, -9, env, "run", "cron", "killed", "--", "sh", "-c", "kill -9 $$")
	out, _ = exits(t, 0, env, "jobs", "shop:cron:killed")
	require.Contains(t, out, "signal: killed")
	for _, args := range [][]string{{"jobs", "--within", "0s"}, {"jobs", "a", "b", "c"}, {"jobs", ""}, {"jobs", "--metrics", "--json"}, {"jobs", "--metrics", "--within", "1h"},
		{"run", "--retry-failed", "a", "b", "--", "true"}} {
		exits(t, usage, env, args...)
	}
}
