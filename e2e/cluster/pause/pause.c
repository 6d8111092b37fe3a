/* pause holds a pod's namespaces: it sleeps until it is told to end, and reaps what other
 * processes of a shared process namespace leave to it. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int signal) {
	(void)signal;
	_exit(0);
}

static void reap(int signal) {
	(void)signal;
	while (waitpid(-1, 0, WNOHANG) > 0) {
	}
}

int main(void) {
	struct sigaction ending = {.sa_handler = end};
	struct sigaction reaping = {.sa_handler = reap, .sa_flags = SA_NOCLDSTOP};
	if (sigaction(SIGINT, &ending, 0) || sigaction(SIGTERM, &ending, 0) || sigaction(SIGCHLD, &reaping, 0))
		return 1;
	for (;;)
		pause();
}
