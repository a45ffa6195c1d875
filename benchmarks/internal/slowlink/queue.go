// Package slowlink is a network with an exact delay.
//
// A Go timer of less than a millisecond lasts 1.1 ms in an idle process, so a delay of half a millisecond needs the
// kernel's own clock. The proxy is one thread that waits in epoll_pwait2 for the next packet to come or to be due,
// whichever is first. Since all delays are equal, packets are due in the order in which they came.
package slowlink

import "time"

// packet is data to forward. No data: the connection has ended.
type packet struct {
	due  time.Time
	to   int // the descriptor; -1: dropped
	data []byte
}

// queue holds packets in the order in which they are due.
type queue struct {
	packets []packet
	head    int
}

func (q *queue) add(p packet) {
	if q.head > 0 && q.head == len(q.packets) {
		q.packets, q.head = q.packets[:0], 0
	}
	q.packets = append(q.packets, p)
}

// take returns the first packet if it is due.
func (q *queue) take(now time.Time) (packet, bool) {
	if q.head == len(q.packets) || q.packets[q.head].due.After(now) {
		return packet{}, false
	}
	p := q.packets[q.head]
	q.packets[q.head] = packet{}
	q.head++
	if q.head > 1024 && q.head > len(q.packets)/2 { // the queue never runs empty under load
		q.packets = append(q.packets[:0], q.packets[q.head:]...)
		q.head = 0
	}
	return p, true
}

// forget drops the packets to a descriptor.
func (q *queue) forget(to int) {
	for i := range q.packets {
		if q.packets[i].to == to {
			q.packets[i].to = -1
		}
	}
}

// wait returns how long it is until the first packet is due; negative when there is none.
func (q *queue) wait() time.Duration {
	if q.head == len(q.packets) {
		return -1
	}
	return max(time.Until(q.packets[q.head].due), 0)
}
