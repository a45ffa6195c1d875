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

// publishEvery is how often the thread publishes its measurements.
const publishEvery = 5 * time.Millisecond

// Proxy forwards TCP connections to a server and delays all traffic by the same time, each way. Packets do not delay each
// other: a second one that arrives 0.1 ms after the first leaves 0.1 ms after it.
//
// One thread does all the work, with epoll and the kernel's clock: see the package's comment.
type Proxy struct {
	Addr string

	target unix.SockaddrInet4
	delay  time.Duration
	epoll  int
	listen int
	wake   int // an eventfd: it is time to stop
	peers  map[int]int
	queue  queue
	buf    []byte
	done   chan struct{}

	own       stats.Histogram // how late each packet was forwarded; used by the thread only
	published time.Time

	mu   sync.Mutex
	late stats.Histogram // guarded by mu: the published part of own
	cpu  time.Duration   // guarded by mu: what the thread has used
}

// Start listens on a free loopback port. delay is for each way.
func Start(target string, delay time.Duration) (*Proxy, error) {
	addr, err := net.ResolveTCPAddr("tcp4", target)
	if err != nil {
		return nil, err
	}
	p := &Proxy{delay: delay, peers: make(map[int]int), buf: make([]byte, 64<<10), done: make(chan struct{})}
	p.target = unix.SockaddrInet4{Port: addr.Port, Addr: [4]byte(addr.IP.To4())}
	if err := p.open(); err != nil {
		return nil, fmt.Errorf("start proxy: %w", err)
	}
	go p.run()
	return p, nil
}

func (p *Proxy) open() (err error) {
	if p.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return err
	}
	if p.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return err
	}
	if p.listen, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
		return err
	}
	err = errors.Join(
		unix.Bind(p.listen, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}),
		unix.Listen(p.listen, unix.SOMAXCONN), p.watch(p.listen), p.watch(p.wake))
	if err != nil {
		return err
	}
	own, err := unix.Getsockname(p.listen)
	if err != nil {
		return err
	}
	p.Addr = fmt.Sprintf("127.0.0.1:%d", own.(*unix.SockaddrInet4).Port)
	return nil
}

func (p *Proxy) watch(fd int) error {
	return unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
}

// Stop closes all connections and waits for the thread's end.
func (p *Proxy) Stop() {
	_, _ = unix.Write(p.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	<-p.done
}

// Late returns how late packets were forwarded since the last call, and the CPU time used since the start; both as of
// some milliseconds ago.
func (p *Proxy) Late() (stats.Summary, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.late.Summary()
	p.late = stats.Histogram{}
	return s, p.cpu
}

func (p *Proxy) run() {
	defer close(p.done)
	runtime.LockOSThread() // and never unlocked: the thread ends with its changed settings
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	defer p.closeAll()
	events := make([]unix.EpollEvent, 64)
	for {
		n, err := epollWait(p.epoll, events, p.queue.wait())
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
	p.peers[client], p.peers[server] = server, client
}

// read puts what has arrived into the queue. The end of a connection is delayed, too.
func (p *Proxy) read(fd int) {
	peer, ok := p.peers[fd]
	if !ok {
		return // closed by an event just before
	}
	n, err := unix.Read(fd, p.buf)
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
	case err != nil || n == 0:
		_ = unix.EpollCtl(p.epoll, unix.EPOLL_CTL_DEL, fd, nil)
		p.queue.add(packet{due: time.Now().Add(p.delay), to: peer})
	default:
		p.queue.add(packet{due: time.Now().Add(p.delay), to: peer, data: append([]byte(nil), p.buf[:n]...)})
	}
}

// deliver forwards what is due.
func (p *Proxy) deliver() {
	now := time.Now()
	for k, ok := p.queue.take(now); ok; k, ok = p.queue.take(now) {
		p.own.Add(now.Sub(k.due))
		if _, open := p.peers[k.to]; open && (len(k.data) == 0 || !writeAll(k.to, k.data)) {
			p.hangUp(k.to)
		}
		now = time.Now()
	}
	p.publish(now)
}

// publish publishes the measurements now and then, because it costs a system call.
func (p *Proxy) publish(now time.Time) {
	if now.Sub(p.published) < publishEvery {
		return
	}
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late.Merge(&p.own)
	p.cpu = time.Duration(t.Nano())
	p.own, p.published = stats.Histogram{}, now
}

// hangUp closes both sides of a connection. Descriptor numbers are reused, so nothing may remain in the queue for a closed
// one.
func (p *Proxy) hangUp(fd int) {
	for _, side := range []int{fd, p.peers[fd]} {
		p.queue.forget(side)
		delete(p.peers, side)
		_ = unix.Close(side)
	}
}

func (p *Proxy) closeAll() {
	for fd := range p.peers {
		_ = unix.Close(fd)
	}
	_, _, _ = unix.Close(p.listen), unix.Close(p.wake), unix.Close(p.epoll)
}
