package devservers

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// Build compiles a main package of the module that the working directory belongs to, without the race detector, and returns the path of
// the program. All processes of this user that call it for the same module share the program: a call that finds it up to date links
// nothing, so the packages of one `go test` build each program once. A later call replaces the file after the source has changed;
// processes that run keep the old program.
func Build(ctx context.Context, main string) (program string, err error) {
	folder, err := programs(ctx)
	if err != nil {
		return "", err
	}
	// Two links at once would both take place.
	lock, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	program = filepath.Join(folder, path.Base(main))
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", program, main).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", main, err, out)
	}
	return program, nil
}

// programs returns the folder of this module's programs. It creates the folder.
func programs(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD", "GOCACHE").Output()
	if err != nil {
		return "", fmt.Errorf("go env: %w", err)
	}
	module, cache, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	folder := filepath.Join(cache, "deeplink-programs", fmt.Sprintf("%x", sha256.Sum256([]byte(module)))[:16])
	return folder, os.MkdirAll(folder, 0o700)
}
