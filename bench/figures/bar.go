package figures

import (
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
)

// Bar shows on a terminal how many of n are done. Elsewhere it shows nothing.
func Bar(n int, what string, on *os.File) *progressbar.ProgressBar {
	info, err := on.Stat()
	return progressbar.NewOptions(n, progressbar.OptionSetWriter(on), progressbar.OptionSetDescription(what), progressbar.OptionShowCount(),
		progressbar.OptionShowIts(), progressbar.OptionThrottle(200*time.Millisecond), progressbar.OptionClearOnFinish(),
		progressbar.OptionSetVisibility(err == nil && info.Mode()&os.ModeCharDevice != 0))
}
