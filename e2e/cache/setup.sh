#!/bin/sh
# Installs what the cache's benchmark needs beside e2e/setup.sh: Debian's rclone, with which volumes are brought without
# Headstart, and the programs of the workflows.
set -eu
# shellcheck source=e2e/packages.sh
. "$(dirname "$0")/../packages.sh"
need rclone rclone
need fuse3 fusermount3
need ffmpeg ffmpeg
need tesseract-ocr tesseract
need tesseract-ocr-eng /usr/share/tesseract-ocr/5/tessdata/eng.traineddata
need nginx-light nginx
need fonts-dejavu-core /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf
install_missing setup
