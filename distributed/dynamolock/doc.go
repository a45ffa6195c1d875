// Package dynamolock keeps locks in items of a DynamoDB table: a backend for wllock.
//
//	backend, err := dynamolock.Open("dynamodb://locks?region=eu-central-1")
//	locker, err := wllock.New("order", backend, wllock.WithOwnedBackend())
//
// Each lock is one item, which is replaced if it still has the version that was read. Package driver/register says what is in it. All reads are
// consistent. A process that waits reads it again and again, since DynamoDB tells of no changes.
//
// # What it needs
//
// A table of its own with the partition key "key" of type S and no sort key, in one region, and "expires" as its time-to-live attribute:
//
//	aws dynamodb create-table --table-name locks --billing-mode PAY_PER_REQUEST \
//	  --attribute-definitions AttributeName=key,AttributeType=S --key-schema AttributeName=key,KeyType=HASH
//	aws dynamodb update-time-to-live --table-name locks --time-to-live-specification Enabled=true,AttributeName=expires
//
// The rights dynamodb:DescribeTable, GetItem, BatchGetItem and PutItem for the table, Scan for wllock ls and top, and DescribeTimeToLive for wllock doctor, if it
// may have that.
//
// # What stays
//
// The item of each key, and one of each process that has held a lock for some time. DynamoDB deletes them two days after their last use, if the
// time-to-live attribute is set.
//
// # What loses locks
//
//   - Whoever deletes items, or restores the table.
//   - A clock of a process that is slow by a day: DynamoDB deletes what its process says has expired.
//   - A global table with eventual consistency, where the last of two writers wins. Ping refuses it.
package dynamolock
