package redislock
import ("testing";"time";"fmt";"github.com/wllock/wllock/internal/redistest")
func TestZZ(t *testing.T) {
	s := redistest.Start(t)
	u := newUser(t, open(t, s.Addr)).lasting(60e9)
	release(t, u.lease("a:b:c"))
	s.Do("CONFIG","RESETSTAT")
	start := time.Now()
	for range 20000 { l := u.lease("a:b:c"); l.Release(t.Context()) }
	fmt.Println(time.Since(start)/20000)
	fmt.Println(s.Do("INFO","commandstats"))
	fmt.Println(s.Do("INFO","latencystats"))
	c := s.Client()
	s.Do("CONFIG","RESETSTAT")
	start = time.Now()
	for range 20000 { c.SetNX(t.Context(),"x:y","z",5e9); c.Del(t.Context(),"x:y") }
	fmt.Println(time.Since(start)/20000)
	fmt.Println(s.Do("INFO","commandstats"))
}
