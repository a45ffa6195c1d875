package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wllock/wllock/internal/etcdtest"
	"github.com/wllock/wllock/internal/zktest"
)

func TestASaleOverEtcd(t *testing.T) {
	status, _, stderr := sale(t.Context(), "-backend", "etcd://"+etcdtest.Start(t).Addr, "-buyers", "40", "-stock", "20", "-ramp", "20ms")
	require.Equal(t, statusOK, status, stderr)
}

func TestASaleOverZooKeeper(t *testing.T) {
	status, _, stderr := sale(t.Context(), "-backend", "zk://"+zktest.Start(t).Addr+"/sale", "-buyers", "40", "-stock", "20", "-ramp", "20ms")
	require.Equal(t, statusOK, status, stderr)
}
