//go:build linux

package command

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/awstest"
)

// onAWS returns the environment for a backend, with credentials of AWS.
func onAWS(url string) []string {
	var env []string
	for _, name := range slices.Sorted(maps.Keys(awstest.Environment)) {
		env = append(env, name+"="+awstest.Environment[name])
	}
	return shop(url, env...)
}

// A bucket that does not compare is refused by name, and so is what expires locks.
func TestDoctorOfS3(t *testing.T) {
	t.Parallel()
	s := awstest.S3(t, "bucket")
	env := onAWS(s.BucketURL(s.Addr))
	found := finds(t, 0, env)
	require.Contains(t, found["versions"], "ok: versioning of the bucket bucket: none")
	require.Contains(t, found["lifecycle"], "ok: no rule is seen, so the object of each key stays")
	s.Set("s3:GetBucketVersioning", "<Status>Enabled</Status>")
	rule := func(days string) string {
		return "<Rule><ID>locks</ID><Status>Enabled</Status><Filter><Prefix></Prefix></Filter><Expiration><Days>" + days + "</Days></Expiration></Rule>"
	}
	s.Set("s3:GetLifecycleConfiguration", rule("3"))
	found = finds(t, no, env)
	require.Contains(t, found["versions"], "warning: versioning of the bucket bucket: Enabled")
	require.Contains(t, found["lifecycle"], `ok: the rule "locks" expires objects after 3 days`)
	s.Set("s3:GetLifecycleConfiguration", rule("1"))
	found = finds(t, wrong, env)
	require.Contains(t, found["lifecycle"], `error: the rule "locks" expires objects after 1 days`)
	for _, header := range []string{"If-Match", "If-None-Match"} {
		s.Fail(awstest.Fault{Action: "s3:PutObject", Ignores: header})
		found = finds(t, wrong, env)
		require.Contains(t, found["access"], "error: ")
		require.Contains(t, found["access"], "the bucket bucket ignores "+header)
	}
	s.Fail(s.Denied("s3:PutObject"))
	require.Contains(t, finds(t, wrong, env)["access"], "the user lacks the right s3:PutObject")
}

// A table that cannot keep locks is refused by name, and one that keeps too many is found.
func TestDoctorOfDynamoDB(t *testing.T) {
	t.Parallel()
	s := awstest.DynamoDB(t, "locks")
	env := onAWS(s.TableURL(s.Addr))
	require.Contains(t, finds(t, 0, env)["expiry"], "ok: the time-to-live attribute of the table locks: expires")
	s.Set("dynamodb:DescribeTimeToLive", `{"TimeToLiveDescription":{"TimeToLiveStatus":"DISABLED"}}`)
	require.Contains(t, finds(t, no, env)["expiry"], "warning: the time-to-live attribute of the table locks: none")
	s.Set("dynamodb:DescribeTable", awstest.Table("key", `,"Replicas":[{"RegionName":"eu-west-1"}]`))
	require.Contains(t, finds(t, wrong, env)["access"], "it is a global table, where the last of two writers wins")
	s.Set("dynamodb:DescribeTable", awstest.Table("LockID", ""))
	require.Contains(t, finds(t, wrong, env)["access"], "want the partition key key of type S, and no sort key")
}
