// Package shopclient calls the shop, and tries again as the shop says.
package shopclient

import "google.golang.org/grpc"

// Policy is the client's part of load shedding. A refused call carries the time after which it may succeed
// (grpc-retry-pushback-ms), which replaces the backoff here; -1 forbids another try. Retries stop when many calls
// fail.
const Policy = `
{
  "methodConfig": [{
    "name": [{"service": "shop.v1.Shop"}],
    "timeout": "5s",
    "retryPolicy": {
      "maxAttempts": 4,
      "initialBackoff": "0.1s",
      "maxBackoff": "2s",
      "backoffMultiplier": 2,
      "retryableStatusCodes": ["RESOURCE_EXHAUSTED", "UNAVAILABLE", "ABORTED"]
    }
  }],
  "retryThrottling": {"maxTokens": 100, "tokenRatio": 0.1}
}
`

// Dial connects to the shop. The options say how it is secured.
func Dial(target string, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient(target, append(opts, grpc.WithDefaultServiceConfig(Policy))...)
}
