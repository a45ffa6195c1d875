// Package natslock keeps locks on NATS JetStream: a backend for wllock, in a stream of its own.
//
//	backend, err := natslock.Open("nats://10.0.0.1,10.0.0.2,10.0.0.3/locks?replicas=3")
//	locker, err := wllock.New("order", backend, wllock.WithOwnedBackend())
//
// Each lock is one message of the stream, on the subject <stream>.<key>, which is replaced when it still has the sequence number that was
// read. It stays for two days after its last use. Package driver/register says what is in it. The stream is made when it is first used. Its
// first number is the time in microseconds, so that no number repeats when it is lost, or deleted. No message is deleted: a server that is
// killed may forget the last numbers with their messages, and give them again (nats-server issues 6600 and 6881).
//
// # What it needs
//
// NATS 2.11 with JetStream, and the rights to publish to <stream>.>, to subscribe to <stream>-changes.>, and to use the API of JetStream for the
// stream: STREAM.CREATE (unless it is there), STREAM.INFO and STREAM.MSG.GET. The server publishes each change there. Ping tries all of them.
//
// # What loses locks
//
//   - One replica: a server that is lost takes all locks along. Name three with replicas=3.
//   - A server writes to its disk at once, and has the disk keep it every two minutes by default. When the machines of a majority lose power
//     within that time, acknowledged locks are lost, and two holders are possible: jepsen.io/analyses/nats-2.12.1. Set sync_interval: always
//     in the server's section jetstream, or have the store check fences.
package natslock
