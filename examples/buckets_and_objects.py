"""Store files in a yard with boto3. First run: eval "$(trainyard env)"."""

import urllib.request

import boto3

s3 = boto3.client("s3")
s3.create_bucket(Bucket="first-steps")
s3.put_object(Bucket="first-steps", Key="data/train.csv", Body=b"x,y\n1,2\n3,4\n", Metadata={"rows": "2"})
s3.put_object(Bucket="first-steps", Key="data/test.csv", Body=b"x,y\n5,6\n")

for entry in s3.list_objects_v2(Bucket="first-steps", Prefix="data/")["Contents"]:
    print(entry["Key"], entry["Size"], "bytes")

train = s3.get_object(Bucket="first-steps", Key="data/train.csv")
print(train["Metadata"], train["Body"].read().decode().splitlines())

link = s3.generate_presigned_url("get_object", Params={"Bucket": "first-steps", "Key": "data/test.csv"}, ExpiresIn=60)
with urllib.request.urlopen(link) as answer:
    print("anyone with the link can read it for a minute:", answer.read().decode().splitlines())
