module github.com/wllock/wllock/distributed/dynamolock

go 1.26.0

require (
	github.com/aws/aws-sdk-go-v2 v1.48.0
	github.com/aws/aws-sdk-go-v2/config v1.33.18
	github.com/aws/aws-sdk-go-v2/service/dynamodb v1.74.0
	github.com/aws/smithy-go v1.28.9
	github.com/stretchr/testify v1.12.1
	github.com/wllock/wllock v0.0.0
	go.uber.org/goleak v1.3.0
)

replace github.com/wllock/wllock => ../..
