// Package s3lock keeps locks in objects of an S3 bucket: a backend for wllock, for processes that have a bucket and nothing else.
//
//	backend, err := s3lock.Open("s3://bucket/locks?region=eu-central-1")
//	locker, err := wllock.New("order", backend, wllock.WithOwnedBackend(), wllock.WithLeaseTTL(15*time.Second))
//
// Each lock is one object, folder/system:name:key.json, which is replaced if it still has the ETag that was read. Package driver/register says
// what is in it. A process that waits reads it again and again, since S3 tells of no changes.
//
// # What it needs
//
// A general purpose bucket in one region, or a service that compares If-Match and If-None-Match as S3 does. Ping tries that with an object
// of its own, wllock-trial.json, and refuses a bucket that does not. The rights s3:GetObject and s3:PutObject for the objects, and s3:ListBucket
// for the bucket: without that S3 answers 403 for an object that is absent. wllock doctor also uses s3:GetBucketVersioning and
// s3:GetLifecycleConfiguration, if it may.
//
// # What stays
//
// The object of each key, and one of each process that has held a lock for some time. A lifecycle rule may expire them when they are three days old.
// One that expires younger ones loses locks. In a bucket with versions each write leaves one, so give locks a bucket without.
//
// # What loses locks
//
//   - Whoever deletes or restores objects, or replicates others over them.
//   - Two buckets: a replica of the bucket, or an access point for several regions, is another service.
//   - A service like S3 that loses what it has acknowledged. S3 itself is strongly consistent.
package s3lock
