package doctor

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/wllock/wllock/distributed/dynamolock"
	"github.com/wllock/wllock/distributed/s3lock"
)

// awsWait bounds what is asked.
const awsWait = 4 * time.Second

// keptDays is how long the objects of locks have to stay after they were written: two days, and one to be sure.
const keptDays = 3

// bucket looks at what removes objects of locks, or multiplies them. What it may not see it says. That the bucket compares Ping has tried.
func bucket(ctx context.Context, p *patient) {
	ctx, cancel := context.WithTimeout(ctx, awsWait)
	defer cancel()
	b, err := s3lock.Open(p.url.String())
	if err != nil {
		p.fail(Finding{Subject: "URL", What: err.Error()})
		return
	}
	defer func() { _ = b.Close() }() // nil
	name := p.url.Host
	if versions, err := b.Client().GetBucketVersioning(ctx, &s3.GetBucketVersioningInput{Bucket: &name}); err != nil {
		p.fine("versions", "not seen: %v", err)
	} else {
		p.judge(versions.Status == s3types.BucketVersioningStatusEnabled, Warning, Finding{
			Subject: "versions", What: fmt.Sprintf("versioning of the bucket %s: %s", name, orNone(string(versions.Status))),
			Means: "each write of a lock leaves a version that is paid for", Mend: "a bucket without versions, or a lifecycle rule with NoncurrentVersionExpiration",
		})
	}
	rules, err := b.Client().GetBucketLifecycleConfiguration(ctx, &s3.GetBucketLifecycleConfigurationInput{Bucket: &name})
	if err != nil {
		p.fine("lifecycle", "no rule is seen, so the object of each key stays: %v", err)
		return
	}
	for _, r := range rules.Rules {
		if r.Status != s3types.ExpirationStatusEnabled || r.Expiration == nil || r.Expiration.Days == nil {
			continue
		}
		p.judge(*r.Expiration.Days < keptDays, Error, Finding{
			Subject: "lifecycle", What: fmt.Sprintf("the rule %q expires objects after %d days", aws.ToString(r.ID), *r.Expiration.Days),
			Means: "if it is for the folder of the locks, fences begin anew, or a lock that is held is lost", Mend: fmt.Sprintf("let it expire them after %d days or more", keptDays),
		})
	}
}

// dynamoTable looks whether items of unused locks go. What else a table needs Ping has looked at.
func dynamoTable(ctx context.Context, p *patient) {
	ctx, cancel := context.WithTimeout(ctx, awsWait)
	defer cancel()
	b, err := dynamolock.Open(p.url.String())
	if err != nil {
		p.fail(Finding{Subject: "URL", What: err.Error()})
		return
	}
	defer func() { _ = b.Close() }() // nil
	name := p.url.Host
	out, err := b.Client().DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: &name})
	if err != nil {
		p.fine("expiry", "not seen: %v", err)
		return
	}
	attribute := aws.ToString(out.TimeToLiveDescription.AttributeName)
	p.judge(attribute != "expires", Warning, Finding{
		Subject: "expiry", What: fmt.Sprintf("the time-to-live attribute of the table %s: %s", name, orNone(attribute)), Means: "the item of each key stays for ever",
		Mend: "aws dynamodb update-time-to-live --table-name " + name + " --time-to-live-specification Enabled=true,AttributeName=expires",
	})
}

func orNone(text string) string { return cmp.Or(text, "none") }
