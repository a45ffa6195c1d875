// Package slowlink is a network with an exact delay.
//
// A Go timer of less than a millisecond lasts 1.1 ms in an idle process, so a delay of half a millisecond needs the
// kernel's own clock. The proxy is one thread that waits in ppoll for the next packet to come or to be due, whichever is
// first. Since all delays are equal, packets are due in the order in which they came.
package slowlink

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wllock/wllock/benchmarks/internal/stats"
)

// Proxy forwards TCP connections to a server and delays all traffic by the same time, each way. Packets do not delay each
// other: a second one that arrives 0.1 ms after the first leaves 0.1 ms after it.
//
// One thread does all the work. The fields without a mutex are its own, once it runs.
type Proxy struct {
	Addr string

	target unix.SockaddrInet4
	delay  time.Duration
	epoll  int
	listen int
	wake   int // an eventfd: it is time to stop
	sides  map[int]*side
	queue  []packet // in the order in which they are due
	buf    []byte
	thread int // its number
	done   chan struct{}

	mu   sync.Mutex
	late stats.Histogram // guarded by mu: how late packets were forwarded
}

// side is one end of a connection.
type side struct {
	fd   int // -1: closed
	peer *side
}

// packet is data to forward. No data: the connection has ended.
type packet struct {
	due  time.Time
	to   *side
	data []byte
}

// Start listens on a free loopback port. delay is for each way.
func Start(target string, delay time.Duration) (*Proxy, error) {
	addr, err := net.ResolveTCPAddr("tcp4", target)
	if err != nil {
		return nil, err
	}
	p := &Proxy{delay: delay, sides: make(map[int]*side), buf: make([]byte, 64<<10), done: make(chan struct{})}
	p.target = unix.SockaddrInet4{Port: addr.Port, Addr: [4]byte(addr.IP.To4())}
	if err := p.open(); err != nil {
		return nil, fmt.Errorf("start proxy: %w", err)
	}
	thread := make(chan int)
	go p.run(thread)
	p.thread = <-thread
	return p, nil
}

func (p *Proxy) open() error {
	var errs [3]error
	p.epoll, errs[0] = unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	p.wake, errs[1] = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	p.listen, errs[2] = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	err := errors.Join(errs[0], errs[1], errs[2], unix.Bind(p.listen, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}),
		unix.Listen(p.listen, unix.SOMAXCONN), p.watch(p.listen), p.watch(p.wake))
	if err != nil {
		return err
	}
	own, err := unix.Getsockname(p.listen)
	if err == nil {
		p.Addr = fmt.Sprintf("127.0.0.1:%d", own.(*unix.SockaddrInet4).Port)
	}
	return err
}

func (p *Proxy) watch(fd int) error {
	return unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
}

// Stop closes all connections and waits for the thread's end.
func (p *Proxy) Stop() {
	_, _ = unix.Write(p.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	<-p.done
}

// Late returns how late packets were forwarded since the last call, and the CPU time that the thread has used since the start.
func (p *Proxy) Late() (stats.Summary, time.Duration) {
	p.mu.Lock()
	late := p.late
	p.late = stats.Histogram{}
	p.mu.Unlock()
	var cpu unix.Timespec
	_ = unix.ClockGettime(int32(^p.thread<<3|6), &cpu) // see clock_getcpuclockid(3): 4 for a thread, 2 for what the scheduler counts
	return late.Summary(), time.Duration(cpu.Nano())
}

func (p *Proxy) run(thread chan<- int) {
	defer close(p.done)
	runtime.LockOSThread() // and never unlocked: the thread ends with its changed settings
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	thread <- unix.Gettid()
	defer p.closeAll()
	ready, events := []unix.PollFd{{Fd: int32(p.epoll), Events: unix.POLLIN}}, make([]unix.EpollEvent, 64)
	for {
		var patience *unix.Timespec // nil: until something comes
		if len(p.queue) > 0 {
			t := unix.NsecToTimespec(int64(max(time.Until(p.queue[0].due), 0)))
			patience = &t
		}
		_, _ = unix.Ppoll(ready, patience, nil) // to the nanosecond, which epoll_wait cannot
		n, err := unix.EpollWait(p.epoll, events, 0)
		if err != nil {
			return
		}
		for _, e := range events[:n] {
			switch fd := int(e.Fd); fd {
			case p.wake:
				return
			case p.listen:
				p.accept()
			default:
				p.read(fd)
			}
		}
		p.deliver()
	}
}

// accept connects a new client with the server.
func (p *Proxy) accept() {
	client, _, err := unix.Accept4(p.listen, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
	if err != nil {
		return
	}
	server, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = errors.Join(unix.Connect(server, &p.target), unix.SetNonblock(server, true),
			unix.SetsockoptInt(server, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
			unix.SetsockoptInt(client, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1), p.watch(server), p.watch(client))
	}
	if err != nil {
		_, _ = unix.Close(client), unix.Close(server)
		return
	}
	near, far := &side{fd: client}, &side{fd: server}
	near.peer, far.peer = far, near
	p.sides[client], p.sides[server] = near, far
}

// read puts what has arrived into the queue. The end of a connection is delayed, too.
func (p *Proxy) read(fd int) {
	from := p.sides[fd]
	if from == nil {
		return // closed by an event just before
	}
	n, err := unix.Read(fd, p.buf)
	if err == unix.EAGAIN || err == unix.EINTR {
		return
	}
	k := packet{due: time.Now().Add(p.delay), to: from.peer}
	if err != nil || n == 0 {
		_ = unix.EpollCtl(p.epoll, unix.EPOLL_CTL_DEL, fd, nil)
	} else {
		k.data = append(k.data, p.buf[:n]...)
	}
	p.queue = append(p.queue, k)
}

// deliver forwards what is due.
func (p *Proxy) deliver() {
	for len(p.queue) > 0 {
		k, now := p.queue[0], time.Now()
		if k.due.After(now) {
			return
		}
		p.queue[0], p.queue = packet{}, p.queue[1:] // append moves what is left now and then
		p.mu.Lock()
		p.late.Add(now.Sub(k.due))
		p.mu.Unlock()
		if k.to.fd >= 0 && (len(k.data) == 0 || !writeAll(k.to.fd, k.data)) {
			p.hangUp(k.to)
			p.hangUp(k.to.peer)
		}
	}
}

func (p *Proxy) hangUp(s *side) {
	delete(p.sides, s.fd)
	_ = unix.Close(s.fd)
	s.fd = -1 // numbers are reused, and packets to it may be in the queue
}

func (p *Proxy) closeAll() {
	for fd := range p.sides {
		_ = unix.Close(fd)
	}
	_, _, _ = unix.Close(p.listen), unix.Close(p.wake), unix.Close(p.epoll)
}

// writeAll writes to a non-blocking socket, waiting when its buffer is full. It reports whether that worked.
func writeAll(fd int, data []byte) bool {
	for len(data) > 0 {
		n, err := unix.Write(fd, data)
		switch err {
		case nil:
			data = data[n:]
		case unix.EAGAIN:
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, 1000)
		case unix.EINTR:
		default:
			return false
		}
	}
	return true
}
