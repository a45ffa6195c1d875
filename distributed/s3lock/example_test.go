package s3lock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/distributed/s3lock"
	"github.com/wllock/wllock/internal/awstest"
)

// states are files in a bucket that one process changes at a time, as Terraform does.
type states struct {
	locker *wllock.Locker
	client *s3.Client
	bucket string
}

// apply changes a state. The write is refused if another has come between: so is that of a process that was paused beyond its lease.
func (s states) apply(ctx context.Context, name string, change func(old []byte) ([]byte, error)) error {
	return s.locker.Do(ctx, "state", name, func(ctx context.Context) error {
		write := &s3.PutObjectInput{Bucket: &s.bucket, Key: &name, IfNoneMatch: aws.String("*")}
		var old []byte
		found, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.bucket, Key: &name})
		var absent *types.NoSuchKey
		switch {
		case err == nil:
			write.IfMatch, write.IfNoneMatch = found.ETag, nil
			old, err = io.ReadAll(found.Body)
			if err = errors.Join(err, found.Body.Close()); err != nil {
				return err
			}
		case !errors.As(err, &absent):
			return err
		}
		text, err := change(old)
		if err != nil {
			return err
		}
		write.Body = bytes.NewReader(text)
		_, err = s.client.PutObject(ctx, write)
		return err
	}, wllock.WithLockTimeMax(0)) // for as long as the change takes
}

// A state in a bucket, and its lock beside it.
func Example_state() {
	ctx := context.Background()
	url, stop := serve()
	defer stop()
	backend, err := s3lock.Open(url)
	check(err)
	locker, err := wllock.New("infra", backend, wllock.WithOwnedBackend())
	check(err)
	defer locker.Close(ctx)
	s := states{locker, backend.Client(), "bucket"}

	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			check(s.apply(ctx, "network.tfstate", func(old []byte) ([]byte, error) { return append(old, 'x'), nil }))
		})
	}
	all.Wait()
	check(s.apply(ctx, "network.tfstate", func(old []byte) ([]byte, error) {
		fmt.Println(len(old), "changes, none lost")
		return old, nil
	}))
	// Output: 5 changes, none lost
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// serve has a bucket in this process.
func serve() (url string, stop func()) {
	var c closing
	s := awstest.S3(&c, "bucket")
	return s.BucketURL(s.Addr), c.stop
}

type closing struct{ stop func() }

func (c *closing) Cleanup(stop func()) { c.stop = stop }
