package main

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
	"deeplink/shared/daemon"
)

// fleet is a private Deeplink with several controls and edges.
type fleet struct {
	*stack.Stack
	controls, edges []*stack.Node
	edgeSettings    []string // of every edge, beside those that the stack gives it
	controlSettings []string // of every control
	dir             string
	programs        string // their folder, if it is to be removed with the fleet
}

// launch builds and starts a fleet in a temporary folder. What the programs write goes to log. Without an edge its short URLs lead
// nowhere.
func launch(ctx context.Context, controls, edges int, log io.Writer, edgeSettings ...string) (f *fleet, err error) {
	// Readers stand for many clients: they say who they are, and the edges believe it.
	f = &fleet{edgeSettings: append([]string{"TRUSTED_PROXIES=127.0.0.1/32"}, edgeSettings...)}
	bin, err := build(ctx)
	if err != nil {
		return f, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close(context.WithoutCancel(ctx)))
		}
	}()
	f.programs = bin
	return f, f.launch(ctx, bin, controls, edges, log)
}

// launch starts a fleet of the programs in bin. The caller closes it, also when there is an error.
func (f *fleet) launch(ctx context.Context, bin string, controls, edges int, log io.Writer) (err error) {
	if f.dir, err = os.MkdirTemp("", "deeplink-bench-"); err != nil {
		return err
	}
	addrs, err := freeAddrs(controls + max(edges, 1))
	if err != nil {
		return err
	}
	f.Stack, err = stack.Open(ctx, stack.Options{
		Dir: f.dir, Bin: bin, Durable: true, LinkBase: "http://" + addrs[controls], Output: &lockedWriter{out: log},
	})
	if err != nil {
		return err
	}
	f.controls, f.edges = make([]*stack.Node, controls), make([]*stack.Node, edges)
	group, starting := errgroup.WithContext(ctx)
	for i := range controls {
		group.Go(func() (err error) {
			f.controls[i], err = f.StartControl(starting, addrs[i], f.controlSettings...)
			return err
		})
	}
	for i := range edges {
		group.Go(func() (err error) {
			f.edges[i], err = f.StartEdge(starting, addrs[controls+i], f.edgeSettings...)
			return err
		})
	}
	return group.Wait()
}

// edgeAddrs are the addresses of the edges, which they keep when they are restarted.
func (f *fleet) edgeAddrs() (addrs []string) {
	for _, edge := range f.edges {
		addrs = append(addrs, edge.Addr)
	}
	return addrs
}

// close stops everything and removes the folder.
func (f *fleet) close(ctx context.Context) error {
	var errs []error
	for _, nodes := range [][]*stack.Node{f.edges, f.controls} {
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
	return errors.Join(append(errs, os.RemoveAll(f.dir), os.RemoveAll(f.programs))...)
}

func freeAddrs(n int) ([]string, error) {
	addrs := make([]string, n)
	for i := range addrs {
		var err error
		if addrs[i], err = daemon.FreeAddr(); err != nil {
			return nil, fmt.Errorf("find %d free ports: %w", n, err)
		}
	}
	return addrs, nil
}

// createLog creates the file of --log, for what the programs write. Without a path that is lost. The caller closes it.
func createLog(path string) (*os.File, error) {
	if path == "" {
		path = os.DevNull
	}
	return os.Create(path)
}

// lockedWriter lets several processes write to one place.
type lockedWriter struct {
	mu  sync.Mutex
	out io.Writer
}

func (w *lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.Write(p)
}
