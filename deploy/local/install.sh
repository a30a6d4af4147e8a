#!/bin/sh
# Installs what is named and not found, through the system's package manager: postgresql, redis, chromium, nginx, wrk, promtool,
# haproxy, caddy, systemd-analyze.
# Servers are installed, never started: everything here runs private ones.
set -eu

found() {
	case $1 in
	postgresql) ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || command -v postgres >/dev/null ;;
	redis) command -v redis-server >/dev/null ;;
	*) command -v "$1" >/dev/null || [ -x "/usr/sbin/$1" ] ;;
	esac
}

missing=
for name; do
	found "$name" || missing="$missing $name"
done
[ -n "$missing" ] || exit 0

root=
[ "$(id -u)" = 0 ] || root=sudo
echo "installing:$missing" >&2
if command -v apt-get >/dev/null; then
	# Debian starts a server as soon as it is installed, on its default port, unless a policy says no.
	policy=/usr/sbin/policy-rc.d
	if [ ! -e $policy ]; then
		printf '#!/bin/sh\nexit 101\n' | $root tee $policy >/dev/null
		$root chmod +x $policy
		trap '$root rm -f $policy' EXIT
		trap 'exit 130' INT TERM HUP
	fi
	$root apt-get update -qq -o Acquire::Retries=3
	# shellcheck disable=SC2086
	$root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq -o Acquire::Retries=3 --no-install-recommends $(echo "$missing" | sed 's/redis/redis-server/; s/promtool/prometheus/; s/systemd-analyze/systemd/') >/dev/null
elif command -v dnf >/dev/null; then
	$root dnf install -y -q $(echo "$missing" | sed 's/postgresql/postgresql-server/; s/promtool/golang-github-prometheus/; s/systemd-analyze/systemd/')
elif command -v apk >/dev/null; then
	$root apk add -q $(echo "$missing" | sed 's/promtool/prometheus/')
else
	echo "no package manager that is known here; install them by hand:$missing" >&2
	exit 1
fi
