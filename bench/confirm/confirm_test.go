package confirm

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
)

func TestOnlyYesConfirms(t *testing.T) {
	t.Parallel()
	for reply, confirmed := range map[string]bool{"y\n": true, "Yes\n": true, "yes": true, "\n": false, "n\n": false, "": false, "yesterday\n": false} {
		if err := ask("write", strings.NewReader(reply), io.Discard); (err == nil) != confirmed || err != nil && !errors.Is(err, ErrDeclined) {
			t.Errorf("reply %q: %v, expected confirmed: %v", reply, err, confirmed)
		}
	}
}

func TestWithoutATerminalNothingIsConfirmed(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	stdin := os.Stdin
	defer func() { os.Stdin = stdin }()
	os.Stdin = null
	if err := Write("write"); !errors.Is(err, ErrNoTerminal) || !strings.Contains(err.Error(), "--yes") {
		t.Errorf("error %v, expected %v", err, ErrNoTerminal)
	}
}
