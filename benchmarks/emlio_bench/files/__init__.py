"""`emlio-bench files`: small files read by programs that know nothing of EMLIO, beside NFS and sshfs."""
