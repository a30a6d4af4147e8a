// Package progress shows the progress of a command on a terminal.
package progress

import (
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// Bar shows how many of n are done if file is a terminal. Otherwise it shows nothing.
func Bar(n int, what string, file *os.File) *progressbar.ProgressBar {
	return progressbar.NewOptions(n, progressbar.OptionSetWriter(file), progressbar.OptionSetDescription(what), progressbar.OptionShowCount(),
		progressbar.OptionShowIts(), progressbar.OptionThrottle(200*time.Millisecond), progressbar.OptionClearOnFinish(),
		progressbar.OptionSetVisibility(term.IsTerminal(int(file.Fd()))))
}
