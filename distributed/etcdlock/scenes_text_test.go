package etcdlock

import (
	"fmt"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/wllock/wllock/internal/parts"
)

type pbKV = mvccpb.KeyValue

// request is a request in short: names are k/<kind>/<instance><number>, revisions r<number>, both in the order of their first use. quiet:
// it is sent at times of its own.
func (p *process) request(m any) (text string, quiet bool) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	switch req := m.(type) {
	case *pb.TxnRequest:
		text = p.txn(req)
		return text, text == "{ get write }" && !p.s.Awaits(p.letter)
	case *pb.LeaseGrantRequest:
		return fmt.Sprint("grant ", req.TTL), false
	case *pb.LeaseRevokeRequest:
		return "revoke", false
	case *pb.LeaseKeepAliveRequest:
		return "keepalive", !p.s.Awaits(p.letter)
	case *pb.WatchRequest:
		if create := req.GetCreateRequest(); create != nil {
			name := p.name(create.Key, create.RangeEnd)
			text = "watch " + name
			if len(create.Filters) == 0 {
				text += " and puts"
			}
			if create.StartRevision > 0 {
				text += " from then on"
			}
			return text, strings.HasPrefix(name, "warm") || len(create.Filters) > 1 // which asks for a sign of life
		}
		return "unwatch", req.GetProgressRequest() != nil
	}
	return fmt.Sprintf("%T", m), false
}

func (p *process) txn(req *pb.TxnRequest) string {
	var ifs []string
	for _, c := range req.Compare {
		key, is := p.name(c.Key, c.RangeEnd), map[bool]string{true: "=", false: "!="}[c.Result == pb.Compare_EQUAL]
		switch to := c.TargetUnion.(type) {
		case *pb.Compare_CreateRevision:
			if c.Result == pb.Compare_LESS {
				ifs = append(ifs, key+"<="+p.revision(to.CreateRevision-1))
				break
			}
			ifs = append(ifs, key+is+p.revision(to.CreateRevision))
		case *pb.Compare_ModRevision:
			ifs = append(ifs, key+" written"+is+p.revision(to.ModRevision))
		case *pb.Compare_Version:
			ifs = append(ifs, fmt.Sprint(key, " version", is, to.Version))
		default:
			ifs = append(ifs, key+" ours")
		}
	}
	text := "{ " + p.ops(req.Success) + " }"
	if len(ifs) > 0 {
		text = "if " + strings.Join(ifs, " ") + " " + text
	}
	if len(req.Failure) > 0 {
		text += " else { " + p.ops(req.Failure) + " }"
	}
	return text
}

func (p *process) ops(ops []*pb.RequestOp) string {
	var all []string
	for _, op := range ops {
		switch one := op.Request.(type) {
		case *pb.RequestOp_RequestPut:
			all = append(all, "put "+p.name(one.RequestPut.Key, nil))
		case *pb.RequestOp_RequestDeleteRange:
			all = append(all, "del "+p.name(one.RequestDeleteRange.Key, one.RequestDeleteRange.RangeEnd))
		case *pb.RequestOp_RequestTxn:
			all = append(all, p.txn(one.RequestTxn))
		case *pb.RequestOp_RequestRange:
			all = append(all, p.get(one.RequestRange))
		}
	}
	return strings.Join(all, ", ")
}

func (p *process) get(r *pb.RangeRequest) string {
	verb := "get "
	switch {
	case r.Limit > 0 && r.SortOrder == pb.RangeRequest_DESCEND:
		verb = "last "
	case r.Limit > 0:
		verb = "first "
	}
	text := verb + p.name(r.Key, r.RangeEnd)
	if r.MaxCreateRevision > 0 {
		text += " before " + p.revision(r.MaxCreateRevision+1)
	}
	if r.MinCreateRevision > 0 {
		text += " after " + p.revision(r.MinCreateRevision-1)
	}
	return text
}

func (p *process) revision(n int64) string {
	switch {
	case n <= 0:
		return fmt.Sprint(n)
	case !p.s.seen[n]:
		return "r?"
	case p.s.revisions[n] == "":
		p.s.revisions[n] = fmt.Sprint("r", len(p.s.revisions)+1)
	}
	return p.s.revisions[n]
}

// name is that of a key, or of a range, in short.
func (p *process) name(key, end []byte) string {
	rest := strings.TrimPrefix(string(key), p.s.prefix+"/")
	if end != nil {
		return rest + "*"
	}
	if special, _, is := strings.Cut(rest, "/"); is && strings.HasPrefix(special, "%") {
		return special[1:]
	}
	if before, _, is := strings.Cut(rest, movedTag); is {
		return before + "moved"
	}
	tag := tagIn(rest)
	if tag == "" {
		return rest
	}
	short, known := p.s.names[rest]
	if !known {
		letter := "?"
		for _, one := range []string{"a", "b", "c", "d"} {
			if parts.Tag(one) == tag {
				letter = one
			}
		}
		n := 1
		for _, other := range p.s.names {
			if strings.HasPrefix(other, letter) {
				n++
			}
		}
		short = fmt.Sprint(letter, n)
		p.s.names[rest] = short
	}
	return strings.TrimSuffix(rest, tag+rest[strings.LastIndexByte(rest, '-'):]) + short
}
