package clicks

import (
	"testing"

	"deeplink/shared/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }
