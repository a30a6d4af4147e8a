package devservers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Backup copies the running server to the folder dir (pg_basebackup), from which [StartPostgres] starts a separate server. With standby,
// that server follows this one under that name until it is promoted. The server's user must be able to reach the folder.
func (p *Postgres) Backup(ctx context.Context, dir, standby string) error {
	c := p.cluster
	c.dir = dir
	if err := c.own(); err != nil {
		return fmt.Errorf("make the folder of a backup: %w", err)
	}
	if err := c.keepPassword(p.cluster.password); err != nil {
		return fmt.Errorf("store the password of a backup: %w", err)
	}
	connection := p.URL()
	if standby != "" {
		connection += "&application_name=" + standby
	}
	arguments := []string{"--pgdata", c.data(), "--dbname", connection, "--checkpoint", "fast", "--wal-method", "stream", "--no-sync"}
	if standby != "" {
		arguments = append(arguments, "--write-recovery-conf")
	}
	return c.run(ctx, "pg_basebackup", arguments...)
}

// Follow makes the stopped server, whose data it deletes, a standby of another server with the same superuser, under that name, and starts
// it.
func (p *Postgres) Follow(ctx context.Context, primary *Postgres, standby string) error {
	p.mu.Lock()
	running := p.child.running()
	p.mu.Unlock()
	if running {
		return errors.New("follow another PostgreSQL: the server is running")
	}
	if err := os.RemoveAll(p.cluster.data()); err != nil {
		return err
	}
	if err := primary.Backup(ctx, p.Dir, standby); err != nil {
		return err
	}
	return p.Start(ctx)
}

// SetBack replaces the data of the stopped server with those in a folder that Backup created, which stays unchanged. To PostgreSQL that is
// a crash at the time of the backup: no new timeline begins.
func (p *Postgres) SetBack(dir string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.child.running() {
		return errors.New("set back PostgreSQL: the server is running")
	}
	if err := os.RemoveAll(p.cluster.data()); err != nil {
		return err
	}
	if err := os.CopyFS(p.cluster.data(), os.DirFS(filepath.Join(dir, "data"))); err != nil {
		return fmt.Errorf("set back PostgreSQL: %w", err)
	}
	return p.cluster.ownData()
}

// Promote makes the running standby a primary, and returns when it accepts writes.
func (p *Postgres) Promote(ctx context.Context) error {
	return p.cluster.run(ctx, "pg_ctl", "promote", "--pgdata", p.cluster.data(), "--wait")
}
