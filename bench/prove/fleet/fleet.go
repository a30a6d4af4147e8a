// Package fleet is a private Deeplink for measurements: real processes of control and edge with a private Postgres and Redis, and
// organizations that call its API.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"deeplink/deploy/stack"
	"deeplink/shared/devservers"
)

const (
	// Lease is L, the default of EDGE_LEASE.
	Lease = 2 * time.Second
	// StopTimeout is how long a process may take to stop in order before it is killed.
	StopTimeout = 5 * time.Second
)

// Fleet is a private Deeplink with several controls and edges.
type Fleet struct {
	*stack.Stack
	Controls, Edges []*stack.Node
	EdgeSettings    []string // settings of every edge, in addition to those of the stack
	ControlSettings []string // settings of every control
	Dir             string   // for files that live no longer than the fleet
	programs        string   // the programs' folder, if Close removes it
}

// Launch builds and starts a fleet in a temporary folder. Logs of the programs go to log. Without an edge, short URLs lead nowhere.
func Launch(ctx context.Context, controls, edges int, log io.Writer, edgeSettings ...string) (f *Fleet, err error) {
	// One process stands for many clients: it sends their addresses in X-Forwarded-For, which the edges trust.
	f = &Fleet{EdgeSettings: append([]string{"TRUSTED_PROXIES=127.0.0.1/32"}, edgeSettings...)}
	bin, err := Build(ctx)
	if err != nil {
		return f, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(context.WithoutCancel(ctx)))
		}
	}()
	f.programs = bin
	return f, f.Launch(ctx, bin, controls, edges, log)
}

// Launch starts a fleet of the programs in bin. The caller closes it, also when there is an error.
func (f *Fleet) Launch(ctx context.Context, bin string, controls, edges int, log io.Writer) (err error) {
	if f.Dir, err = os.MkdirTemp("", "deeplink-bench-"); err != nil {
		return err
	}
	addrs, err := FreeAddrs(controls + max(edges, 1))
	if err != nil {
		return err
	}
	var output io.Writer = &LockedWriter{Out: log}
	if file, ok := log.(*os.File); ok {
		output = file // the programs write into it themselves, and not through this process, which measures them
	}
	f.Stack, err = stack.Open(ctx, stack.Options{
		Dir: f.Dir, Bin: bin, Durable: true, LinkBase: "http://" + addrs[controls], Output: output,
	})
	if err != nil {
		return err
	}
	f.Controls, f.Edges = make([]*stack.Node, controls), make([]*stack.Node, edges)
	group, starting := errgroup.WithContext(ctx)
	for i := range controls {
		group.Go(func() (err error) {
			f.Controls[i], err = f.StartControl(starting, addrs[i], f.ControlSettings...)
			return err
		})
	}
	for i := range edges {
		group.Go(func() (err error) {
			f.Edges[i], err = f.StartEdge(starting, addrs[controls+i], f.EdgeSettings...)
			return err
		})
	}
	return group.Wait()
}

// EdgeAddrs returns the addresses of the edges, which stay the same across restarts.
func (f *Fleet) EdgeAddrs() (addrs []string) {
	for _, edge := range f.Edges {
		addrs = append(addrs, edge.Addr)
	}
	return addrs
}

// Close stops everything and removes the folder.
func (f *Fleet) Close(ctx context.Context) error {
	var errs []error
	for _, nodes := range [][]*stack.Node{f.Edges, f.Controls} {
		for _, n := range nodes {
			if n != nil {
				errs = append(errs, n.Stop(ctx, 15*time.Second))
			}
		}
	}
	if f.Stack != nil {
		errs = append(errs, f.Stack.Close(ctx))
		if elsewhere := f.PostgresElsewhere(); elsewhere != "" {
			errs = append(errs, os.RemoveAll(elsewhere))
		}
	}
	return errors.Join(append(errs, os.RemoveAll(f.Dir), os.RemoveAll(f.programs))...)
}

// FreeAddrs returns n loopback addresses with free ports.
func FreeAddrs(n int) ([]string, error) {
	addrs := make([]string, n)
	for i := range addrs {
		var err error
		if addrs[i], err = devservers.FreeAddr(); err != nil {
			return nil, fmt.Errorf("find %d free ports: %w", n, err)
		}
	}
	return addrs, nil
}

// LockedWriter lets several processes write to one writer.
type LockedWriter struct {
	mu  sync.Mutex
	Out io.Writer // set before the first write
}

// Write implements io.Writer. It is safe for concurrent use.
func (w *LockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.Out.Write(p)
}

// Build compiles a fleet with optional flags of go build, and returns the folder of its programs. The caller removes it.
func Build(ctx context.Context, flags ...string) (bin string, err error) {
	if bin, err = os.MkdirTemp("", "deeplink-bin-"); err != nil {
		return "", err
	}
	if err = stack.Build(ctx, bin, flags...); err != nil {
		return "", errors.Join(err, os.RemoveAll(bin))
	}
	return bin, nil
}

// Dead returns the names of the processes that have ended, and how.
func Dead(nodes map[string]*stack.Node) (died []string) {
	for name, node := range nodes {
		select {
		case <-node.Exited():
			died = append(died, name+": "+node.Exit())
		default:
		}
	}
	return died
}
