package server

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/embed"
)

// startEtcd runs one etcd member on a loopback port of the kernel's choice and returns its client URL once it
// serves. write writes into it; stop closes it and waits for its goroutines.
func startEtcd(ctx context.Context, dir string, durable bool) (endpoint string, write put, stop func(), err error) {
	c := embed.NewConfig()
	c.Dir = filepath.Join(dir, "etcd")
	c.Name = "lab"
	any := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{any}, []url.URL{any}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{any}, []url.URL{any}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.LogLevel = "warn"
	c.LogOutputs = []string{filepath.Join(dir, "logs", "etcd.log")}
	c.EnableGRPCGateway = false // it would dial the advertised address, which names no port
	c.UnsafeNoFsync = !durable
	c.QuotaBackendBytes = 8 << 30
	c.MaxRequestBytes = 8 << 20
	// Kept short: entries in memory are what most of a small etcd weighs.
	c.SnapshotCount = 10000
	c.SnapshotCatchUpEntries = 1000
	c.TickMs, c.ElectionMs = 100, 1000
	e, err := embed.StartEtcd(c)
	if err != nil {
		return "", nil, nil, fmt.Errorf("start etcd: %w", err)
	}
	select {
	case <-e.Server.ReadyNotify():
	case err := <-e.Err():
		e.Close()
		return "", nil, nil, fmt.Errorf("start etcd: %w", err)
	case <-ctx.Done():
		e.Close()
		return "", nil, nil, fmt.Errorf("start etcd: %w", ctx.Err())
	}
	return "http://" + e.Clients[0].Addr().String(), e.Server.Put, e.Close, nil
}
