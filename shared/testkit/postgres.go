package testkit

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"deeplink/migrations"
	"deeplink/shared/devservers"
)

const (
	template     = "deeplink"
	controlLogin = "control_login"
	edgeLogin    = "edge_login"
)

// newServer starts a server and migrates its template.
func newServer(ctx context.Context) (_ *server, err error) {
	if err := sweep(); err != nil {
		return nil, err
	}
	// Not t.TempDir, which the user of PostgreSQL cannot reach when the tests run as root.
	folder, err := os.MkdirTemp(Scratch(), folderPrefix()+strconv.Itoa(os.Getpid())+"-")
	if err != nil {
		return nil, err
	}
	postgres, err := devservers.StartPostgres(ctx, devservers.PostgresOptions{Dir: folder})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	s := &server{postgres: postgres, folder: folder, password: rand.Text()}
	if err := s.prepare(ctx); err != nil {
		s.remove()
		return nil, err
	}
	return s, nil
}

// prepare creates the template and, because the migrations create their group roles, then the logins.
func (s *server) prepare(ctx context.Context) error {
	if err := s.exec(ctx, "postgres", "create database "+template); err != nil {
		return err
	}
	if _, err := migrations.Up(ctx, s.address(template, nil)); err != nil {
		return err
	}
	for login, group := range map[string]string{controlLogin: "deeplink_control", edgeLogin: "deeplink_edge"} {
		statement := fmt.Sprintf("create role %s login password '%s' in role %s", login, s.password, group)
		if err := s.exec(ctx, "postgres", statement); err != nil {
			return err
		}
	}
	return nil
}

// shm is where Linux keeps files in memory.
const shm = "/dev/shm"

// Scratch returns the folder for data of PostgreSQL that need not survive this machine: one in memory if it has 4 GiB of space, otherwise
// os.TempDir. A test's database is about 700 files, and ext4 takes long to create files after it deleted as many: in memory, tests that
// create databases take two thirds of the time.
func Scratch() string {
	var disk syscall.Statfs_t
	if err := syscall.Statfs(shm, &disk); err != nil || uint64(disk.Bavail)*uint64(disk.Bsize) < 4<<30 {
		return os.TempDir()
	}
	return shm
}

func folderPrefix() string {
	return fmt.Sprintf("deeplink-testkit-%d-", os.Getuid())
}

// sweep deletes the folders of killed test binaries.
func sweep() error {
	var folders []string
	for _, parent := range []string{os.TempDir(), shm} {
		found, err := filepath.Glob(filepath.Join(parent, folderPrefix()+"*"))
		if err != nil {
			return err
		}
		folders = append(folders, found...)
	}
	for _, folder := range folders {
		owner, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(folder), folderPrefix()), "-")
		pid, err := strconv.Atoi(owner)
		if err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			// Another binary may delete it at the same time.
			_ = os.RemoveAll(folder)
		}
	}
	return nil
}
