# A job that works for some seconds and ends with an exit code: `bash work.sh SECONDS CODE`.
# A fault of one of its nodes ends it sooner, with the code that the fault left for it.
end=$((SECONDS + $1))
while [ "$SECONDS" -lt "$end" ]; do
  fault="faults/$SLURM_JOB_ID"
  if [ -s "$fault" ]; then
    code=$(cat "$fault")
    rm "$fault"
    [ "$code" = hang ] && sleep 100000
    exit "$code"
  fi
  left=$((end - SECONDS))
  sleep "$((left < 60 ? left : 60))"
done
exit "$2"
