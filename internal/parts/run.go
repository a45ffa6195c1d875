package parts

import (
	"encoding/json"
	"time"

	"github.com/wllock/wllock/distributed"
)

// run is how a distributed.Run is kept: times in ms since 1970, because they are of a process's clock.
type run struct {
	Key      string `json:"key"`
	Instance string `json:"by"`
	Began    int64  `json:"began"`
	Took     int64  `json:"took"`
	Result   string `json:"result"`
	Until    int64  `json:"until,omitempty"`
	Fence    uint64 `json:"fence,string,omitempty"`
}

// RunText is the text that keeps a run.
func RunText(r distributed.Run) (string, error) {
	kept := run{Key: r.Key, Instance: r.Instance, Began: r.Began.UnixMilli(), Took: r.Took.Milliseconds(), Result: r.Result, Fence: r.Fence}
	if !r.Until.IsZero() {
		kept.Until = r.Until.UnixMilli()
	}
	text, err := json.Marshal(kept)
	return string(text), err
}

// ReadRun reads a text that keeps a run. What cannot be read is the zero Run.
func ReadRun(text string) (r distributed.Run) {
	var kept run
	if json.Unmarshal([]byte(text), &kept) != nil {
		return r
	}
	r = distributed.Run{
		Key: kept.Key, Instance: kept.Instance, Began: time.UnixMilli(kept.Began), Took: time.Duration(kept.Took) * time.Millisecond,
		Result: kept.Result, Fence: kept.Fence,
	}
	if kept.Until != 0 {
		r.Until = time.UnixMilli(kept.Until)
	}
	return r
}
